package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Product;

/**
 * The tables of a deltasql catalog in Spark SQL.
 *
 * `spark.sql.catalog.lake = io.deltasql.spark.DeltaSqlCatalog`, and one of the options `service`
 * (a service file) and `uri` (a catalog). All decisions are made by the service.
 */
public class DeltaSqlCatalog
        implements StagingTableCatalog, SupportsNamespaces, FunctionCatalog, ProcedureCatalog {
    private static final Set<String> OPTIONS = Set.of("uri", "service");
    private static final Set<String> CAPABILITIES = Set.of(
        "SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS", "SUPPORT_COLUMN_DEFAULT_VALUE",
        "SUPPORTS_CREATE_TABLE_WITH_IDENTITY_COLUMNS", "SUPPORT_TABLE_CONSTRAINT");

    private String name;
    private String uri;
    private String file;
    private Service service;
    private SessionTransaction transaction;
    private Runnable endOfStatement = () -> {};

    @Override
    public void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        SparkRelease.check("The catalog " + name);
        String prefix = "spark.sql.catalog." + name + ".";
        for (String key : options.keySet()) {
            if (!OPTIONS.contains(key)) {
                throw new IllegalArgumentException(
                    prefix + key + " is not an option: the options are " + prefix + "uri and "
                        + prefix + "service.");
            }
        }
        uri = options.get("uri");
        file = options.get("service");
        if (uri == null && file == null) {
            throw new IllegalArgumentException(
                "Set " + prefix + "uri to a catalog, such as deltasql://sqlite//lake/catalog.db, or "
                    + prefix + "service to a service file.");
        }
        Service.rejectPassword(prefix + "uri", uri);
    }

    @Override
    public String name() {
        return name;
    }

    /** Return the capabilities of this catalog that the running release of Spark knows. */
    @Override
    public Set<TableCatalogCapability> capabilities() {
        return Arrays.stream(TableCatalogCapability.values())
            .filter(each -> CAPABILITIES.contains(each.name())).collect(Collectors.toSet());
    }

    @Override
    public String[] defaultNamespace() {
        return new String[] {"default"};
    }

    /** Return the service; the first call connects, so that a session starts without it. */
    synchronized Service service() {
        if (service == null) {
            service = new Service(uri, file, Service.python());
        }
        return service;
    }

    // Tables

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        if (!namespaceExists(namespace)) {
            throw new NoSuchNamespaceException(namespace);
        }
        JsonNode response = service().call("tables", Map.of("namespace", namespace[0]));
        return Service.texts(response.get("tables")).stream()
            .map(each -> Identifier.of(namespace, each)).toArray(Identifier[]::new);
    }

    @Override
    public Table loadTable(Identifier ident) throws NoSuchTableException {
        return load(ident, new HashMap<>());
    }

    @Override
    public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
        Map<String, Object> at = new HashMap<>();
        try {
            at.put("version", Long.valueOf(version));
        } catch (NumberFormatException error) {
            throw new IllegalArgumentException(
                "VERSION AS OF takes the number of a version, not '" + version + "'.");
        }
        return load(ident, at);
    }

    @Override
    public Table loadTable(Identifier ident, long timestamp) throws NoSuchTableException {
        Map<String, Object> at = new HashMap<>();
        at.put("timestamp_us", timestamp);
        return load(ident, at);
    }

    /**
     * Return the change feed of a table; Spark has this method since 4.2.
     *
     * Earlier releases lack the classes in its signature, and load this class nevertheless, because
     * the method only passes them on.
     */
    public Changelog loadChangelog(
            Identifier ident, ChangelogContext context, CaseInsensitiveStringMap options)
            throws NoSuchTableException {
        return TableChangelog.of(this, ident, context, options);
    }

    private Table load(Identifier ident, Map<String, Object> at) throws NoSuchTableException {
        boolean isLatest = at.isEmpty();
        at.putAll(named(ident));
        return table(ident, askAbout(ident, "table", at), isLatest);
    }

    private DeltaSqlTable table(Identifier ident, JsonNode described, boolean isLatest) {
        if (isLatest && described.hasNonNull("read_in") && SparkRelease.isAtLeast(4, 2)) {
            return EvolvingTable.of(this, ident, described);
        }
        return new DeltaSqlTable(this, ident, described, isLatest);
    }

    @Override
    public Table createTable(
            Identifier ident, Column[] columns, Transform[] partitions,
            Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        return created(ident, stageCreate(ident, columns, partitions, properties));
    }

    /** Create a table that may have constraints; Spark has this method since 4.1. */
    @Override
    public Table createTable(Identifier ident, TableInfo info)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        return created(ident, stageCreate(ident, info));
    }

    private Table created(Identifier ident, StagedTable staged) {
        staged.commitStagedChanges();
        try {
            return loadTable(ident);
        } catch (NoSuchTableException error) {
            throw new IllegalStateException(error); // another session dropped it at once
        }
    }

    @Override
    public StagedTable stageCreate(
            Identifier ident, Column[] columns, Transform[] partitions,
            Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        return stageCreate(ident, TableDefinition.of(name, columns, partitions, properties));
    }

    @Override
    public StagedTable stageCreate(Identifier ident, TableInfo info)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        return stageCreate(ident, TableDefinition.of(name, info));
    }

    private StagedTable stageCreate(Identifier ident, Map<String, Object> definition)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        try {
            return stage("create", ident, definition);
        } catch (DeltaSqlException error) {
            if (error.is("TableExistsError")) {
                throw new TableAlreadyExistsException(ident);
            }
            throw error;
        }
    }

    @Override
    public StagedTable stageReplace(
            Identifier ident, Column[] columns, Transform[] partitions,
            Map<String, String> properties) throws NoSuchNamespaceException, NoSuchTableException {
        return stageReplace(ident, TableDefinition.of(name, columns, partitions, properties));
    }

    @Override
    public StagedTable stageReplace(Identifier ident, TableInfo info)
            throws NoSuchNamespaceException, NoSuchTableException {
        return stageReplace(ident, TableDefinition.of(name, info));
    }

    private StagedTable stageReplace(Identifier ident, Map<String, Object> definition)
            throws NoSuchNamespaceException, NoSuchTableException {
        try {
            return stage("replace", ident, definition);
        } catch (DeltaSqlException error) {
            throw notFound(error, ident);
        }
    }

    @Override
    public StagedTable stageCreateOrReplace(
            Identifier ident, Column[] columns, Transform[] partitions,
            Map<String, String> properties) throws NoSuchNamespaceException {
        return stage("create_or_replace", ident,
            TableDefinition.of(name, columns, partitions, properties));
    }

    @Override
    public StagedTable stageCreateOrReplace(Identifier ident, TableInfo info)
            throws NoSuchNamespaceException {
        return stage("create_or_replace", ident, TableDefinition.of(name, info));
    }

    private StagedTable stage(String mode, Identifier ident, Map<String, Object> definition)
            throws NoSuchNamespaceException {
        if (ident.namespace().length != 1) {
            throw new NoSuchNamespaceException(ident.namespace());
        }
        definition.put("mode", mode);
        Map<String, Object> body = named(ident);
        body.put("create", definition);
        body.put("checks_rules", true);
        body.put("reserves_numbers", true);
        return new StagedDeltaSqlTable(this, ident, service().call("write_begin", body));
    }

    @Override
    public Table alterTable(Identifier ident, TableChange... changes) throws NoSuchTableException {
        List<Map<String, Object>> sent = new ArrayList<>();
        for (TableChange change : changes) {
            sent.add(described(change));
        }
        Map<String, Object> body = named(ident);
        body.put("changes", sent);
        return table(ident, askAbout(ident, "table_alter", body), true);
    }

    private static Map<String, Object> described(TableChange change) {
        Map<String, Object> found = new HashMap<>();
        if (change instanceof TableChange.ColumnChange column) {
            found.put("column", column.fieldNames());
        }
        if (change instanceof TableChange.AddColumn add && add.position() == null) {
            found.put("change", "add column");
            found.put("schema", new StructType(
                new StructField[] {TableDefinition.field(add)}).json());
        } else if (change instanceof TableChange.RenameColumn rename) {
            found.put("change", "rename column");
            found.put("new_name", rename.newName());
        } else if (change instanceof TableChange.DeleteColumn) {
            found.put("change", "drop column");
        } else if (change instanceof TableChange.UpdateColumnNullability update
                && update.nullable()) {
            found.put("change", "drop not null");
        } else if (change instanceof TableChange.UpdateColumnType update) {
            found.put("change", "column type");
            found.put("schema", new StructType().add("type", update.newDataType()).json());
        } else if (change instanceof TableChange.UpdateColumnDefaultValue update) {
            String value = update.newDefaultValue();
            found.put("change", "column default");
            found.put("default", value == null || value.isEmpty() ? null : value);
        } else if (change instanceof TableChange.UpdateColumnComment update) {
            found.put("change", "column comment");
            found.put("comment", update.newComment());
        } else if (change instanceof TableChange.SetProperty set) {
            found.put("change", "set property");
            found.put("key", set.property());
            found.put("value", set.value());
        } else if (change instanceof TableChange.RemoveProperty remove) {
            found.put("change", "unset property");
            found.put("key", remove.property());
        } else if (change instanceof TableChange.ClusterBy cluster) {
            found.put("change", "cluster by");
            found.put("columns", Arrays.stream(cluster.clusteringColumns())
                .map(each -> String.join(".", each.fieldNames())).toList());
        } else if (change instanceof Product product) {
            found.putAll(DeltaChanges.described(product));
        } else if (CheckConstraints.isChange(change)) {
            found.putAll(CheckConstraints.described(change));
        } else {
            found.put("change", change.getClass().getSimpleName()); // the service refuses it
        }
        return found;
    }

    @Override
    public boolean dropTable(Identifier ident) {
        try {
            service().call("table_drop", named(ident));
            return true;
        } catch (DeltaSqlException error) {
            if (error.is("TxnLogTableNotFoundError")) {
                return false;
            }
            throw error;
        }
    }

    @Override
    public void renameTable(Identifier from, Identifier to)
            throws NoSuchTableException, TableAlreadyExistsException {
        Map<String, Object> body = named(from);
        body.put("new_namespace", named(to).get("namespace"));
        body.put("new_name", to.name());
        try {
            askAbout(from, "table_rename", body);
        } catch (DeltaSqlException error) {
            if (error.is("TableExistsError")) {
                throw new TableAlreadyExistsException(to);
            }
            throw error;
        }
    }

    // Namespaces

    @Override
    public String[][] listNamespaces() {
        JsonNode response = service().call("namespaces", Map.of());
        return Service.texts(response.get("namespaces")).stream()
            .map(each -> new String[] {each}).toArray(String[][]::new);
    }

    @Override
    public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length == 0) {
            return listNamespaces();
        }
        loadNamespaceMetadata(namespace);
        return new String[0][];
    }

    @Override
    public boolean namespaceExists(String[] namespace) {
        if (namespace.length != 1) {
            return false;
        }
        for (String[] each : listNamespaces()) {
            if (each[0].equals(namespace[0])) {
                return true;
            }
        }
        return false;
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace)
            throws NoSuchNamespaceException {
        if (!namespaceExists(namespace)) {
            throw new NoSuchNamespaceException(namespace);
        }
        return Map.of();
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata)
            throws NamespaceAlreadyExistsException {
        if (namespaceExists(namespace)) {
            throw new NamespaceAlreadyExistsException(namespace);
        }
        if (namespace.length != 1) {
            throw new IllegalArgumentException(
                "A namespace of the catalog " + name + " has one part, not "
                    + String.join(".", namespace) + ".");
        }
        service().call("namespace_create", Map.of("namespace", namespace[0]));
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw new UnsupportedOperationException("A namespace of deltasql has no properties.");
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade)
            throws NoSuchNamespaceException, NonEmptyNamespaceException {
        if (!namespaceExists(namespace)) {
            return false;
        }
        if (!cascade && listTables(namespace).length > 0) {
            throw new NonEmptyNamespaceException(namespace);
        }
        service().call("namespace_drop", Map.of("namespace", namespace[0], "cascade", cascade));
        return true;
    }

    // Functions

    @Override
    public Identifier[] listFunctions(String[] namespace) {
        return new Identifier[0];
    }

    /** Return the function that a write uses; there are no others. */
    @Override
    public UnboundFunction loadFunction(Identifier ident) throws NoSuchFunctionException {
        if (ident.namespace().length > 0 || !ident.name().equals(WriteTask.NAME)) {
            throw new NoSuchFunctionException(ident);
        }
        return new WriteTask();
    }

    // Procedures and transactions

    /** Return a procedure in the namespace `system`; the service has the list of procedures. */
    @Override
    public UnboundProcedure loadProcedure(Identifier ident) {
        for (ServiceProcedure each : procedures(ident.namespace())) {
            if (each.name().equalsIgnoreCase(ident.name())) {
                return each;
            }
        }
        throw new IllegalArgumentException(
            "There is no procedure " + name + "." + ident + ": SHOW PROCEDURES IN " + name
                + ".system lists all.");
    }

    /** Return all procedures of a namespace; Spark 4.0 does not ask for them. */
    public Identifier[] listProcedures(String[] namespace) {
        return procedures(namespace).stream()
            .map(each -> Identifier.of(namespace, each.name())).toArray(Identifier[]::new);
    }

    private List<ServiceProcedure> procedures(String[] namespace) {
        List<ServiceProcedure> found = new ArrayList<>();
        if (namespace.length == 1 && namespace[0].equalsIgnoreCase("system")) {
            service().call("procedures", Map.of()).get("procedures")
                .forEach(each -> found.add(new ServiceProcedure(this, each)));
        }
        return found;
    }

    /** Return a catalog of the same name for one statement that has its own transaction. */
    DeltaSqlCatalog forStatement(String transaction, Runnable end) {
        DeltaSqlCatalog found = new DeltaSqlCatalog();
        found.name = name;
        found.service = service().inTransaction(transaction);
        found.endOfStatement = end;
        return found;
    }

    /** Commit the statement's own transaction, if any: Spark does not do so for staged tables. */
    void endStatement() {
        endOfStatement.run();
    }

    /** Return whether statements of this session belong to one transaction. */
    synchronized boolean isInTransaction() {
        return transaction != null;
    }

    /** Run all following statements of this session in a transaction. */
    synchronized void begin(String id) {
        transaction = new SessionTransaction(this, service, id);
        service = service.inTransaction(id);
    }

    /** Run the following statements of this session outside of a transaction. */
    synchronized void end() {
        service = service.outside();
        if (transaction != null) {
            transaction.close();
            transaction = null;
        }
    }

    // Requests

    /** Return the part of a request that names a table. */
    static Map<String, Object> named(Identifier ident) {
        Map<String, Object> found = new HashMap<>();
        found.put("namespace", String.join(".", ident.namespace()));
        found.put("name", ident.name());
        return found;
    }

    /** Send a request about a table; throw Spark's own error if the table does not exist. */
    JsonNode askAbout(Identifier ident, String request, Map<String, Object> body)
            throws NoSuchTableException {
        if (ident.namespace().length != 1) {
            throw new NoSuchTableException(ident);
        }
        try {
            return service().call(request, body);
        } catch (DeltaSqlException error) {
            throw notFound(error, ident);
        }
    }

    /** Throw Spark's own error for a table that does not exist; otherwise return the error. */
    private static DeltaSqlException notFound(DeltaSqlException error, Identifier ident)
            throws NoSuchTableException {
        if (error.is("TxnLogTableNotFoundError")) {
            throw new NoSuchTableException(ident);
        }
        return error;
    }
}
