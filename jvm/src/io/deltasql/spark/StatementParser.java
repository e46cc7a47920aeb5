package io.deltasql.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedProcedure;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.Call;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Parses the statements that Delta adds to Spark SQL, about tables of deltasql's catalogs, as calls
 * of procedures. All other texts, and all other methods, go to Spark's parser unchanged.
 *
 * The interface of the parser differs between releases of Spark. A proxy has all its methods.
 */
final class StatementParser implements InvocationHandler {
    private static final String SPACE = "(?:\\s|--[^\\n]*(?:\\n|$)|/\\*(?s:.*?)\\*/)";
    private static final String NAME = "(?:`(?:[^`]|``)+`|[\\p{L}\\p{N}_]+)";
    private static final String NAMES = NAME + "(?:\\s*\\.\\s*" + NAME + ")*";
    private static final Pattern ABOUT_A_TABLE = statement(
        "(?:OPTIMIZE|VACUUM|RESTORE|UNDROP|(?:DESCRIBE|DESC)" + SPACE + "+(?:HISTORY|DETAIL))"
            + SPACE + "+(?:TABLE" + SPACE + "+)?(?<table>" + NAMES + ")(?!" + SPACE + "*[.\\w`]*\\().*");
    private static final Pattern CLONE = statement(
        "(?:CREATE(?:" + SPACE + "+OR" + SPACE + "+REPLACE)?|REPLACE)" + SPACE + "+TABLE" + SPACE
            + "+(?:IF" + SPACE + "+NOT" + SPACE + "+EXISTS" + SPACE + "+)?(?<table>" + NAMES + ")"
            + SPACE + "+(?:(?:SHALLOW|DEEP)" + SPACE + "+)?CLONE" + SPACE + "+.*");
    private static final Pattern ALTER = statement(
        "ALTER" + SPACE + "+TABLE" + SPACE + "+(?<table>" + NAMES + ")" + SPACE + "+(?:ALTER|CHANGE)"
            + SPACE + "+(?:COLUMN" + SPACE + "+)?" + NAMES + SPACE + "+(?:SYNC" + SPACE
            + "+IDENTITY|SET" + SPACE + "+NOT" + SPACE + "+NULL)" + SPACE + "*;?" + SPACE + "*");
    private static final Pattern DROP_FEATURE = statement(
        "ALTER" + SPACE + "+TABLE" + SPACE + "+(?<table>" + NAMES + ")" + SPACE + "+DROP" + SPACE
            + "+FEATURE\\b.*");
    private static final Pattern REORG = statement(
        "REORG" + SPACE + "+(?:TABLE" + SPACE + "+)?(?<table>" + NAMES + ")\\b.*");
    private static final List<Pattern> ABOUT_TABLES =
        List.of(ABOUT_A_TABLE, REORG, ALTER, DROP_FEATURE, CLONE);
    private static final Pattern CONVERT = statement("CONVERT" + SPACE + "+TO" + SPACE + "+DELTA\\b.*");
    private static final Pattern TRANSACTION = statement(
        "(?<begin>BEGIN|START(?=" + SPACE + "+TRANSACTION)|COMMIT|ROLLBACK)"
            + "(?:" + SPACE + "+(?:TRANSACTION|WORK))?" + SPACE + "*;?" + SPACE + "*");
    /** A table `t@3` or `t@v3`, or something in which an @ means nothing: strings and comments. */
    private static final Pattern AT_VERSION = Pattern.compile(
        "'(?:[^'\\\\]|\\\\.)*'|\"(?:[^\"\\\\]|\\\\.)*\"|--[^\\n]*|/\\*.*?\\*/"
            + "|(?<table>" + NAMES + ")@v?(?<version>\\d+)\\b", Pattern.DOTALL);
    private static final Pattern ONE_NAME = Pattern.compile(NAME);

    private final SparkSession session;
    private final ParserInterface delegate;

    private StatementParser(SparkSession session, ParserInterface delegate) {
        this.session = session;
        this.delegate = delegate;
    }

    /** Return a parser that parses the added statements itself. */
    static ParserInterface around(SparkSession session, ParserInterface delegate) {
        return (ParserInterface) Proxy.newProxyInstance(
            StatementParser.class.getClassLoader(), new Class<?>[] {ParserInterface.class},
            new StatementParser(session, delegate));
    }

    private static Pattern statement(String words) {
        return Pattern.compile(
            SPACE + "*" + words, Pattern.CASE_INSENSITIVE | Pattern.DOTALL | Pattern.UNICODE_CASE);
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        if (!method.getName().startsWith("parsePlan")) {
            return parsed(method, arguments);
        }
        String text = (String) arguments[0];
        LogicalPlan plan = call(text);
        if (plan != null) {
            return plan;
        }
        try {
            return parsed(method, arguments);
        } catch (ParseException error) {
            String rewritten = withVersionClauses(text);
            if (rewritten.equals(text)) {
                throw error;
            }
            Object[] changed = arguments.clone();
            changed[0] = rewritten;
            return parsed(method, changed);
        }
    }

    private Object parsed(Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(delegate, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    /** Return the call of a procedure for one of the added statements; null for other texts. */
    private LogicalPlan call(String text) {
        Matcher transaction = TRANSACTION.matcher(text);
        if (transaction.matches()) {
            String word = transaction.group("begin").toLowerCase(Locale.ROOT);
            String catalog = onlyCatalog();
            return catalog == null ? null
                : call(catalog, word.equals("start") ? "begin" : word, List.of());
        }
        String catalog = null;
        if (CONVERT.matcher(text).matches()) {
            catalog = catalogOf(List.of());
        }
        for (Pattern each : ABOUT_TABLES) {
            Matcher found = each.matcher(text);
            if (found.matches()) {
                catalog = catalogOf(parts(found.group("table")));
                break;
            }
        }
        return catalog == null ? null : call(catalog, "execute", List.of(
            new Literal(UTF8String.fromString(text), DataTypes.StringType)));
    }

    private static LogicalPlan call(String catalog, String procedure, List<Expression> arguments) {
        return new Call(
            new UnresolvedProcedure(seq(List.of(catalog, "system", procedure))), seq(arguments), true);
    }

    private static <T> Seq<T> seq(List<T> given) {
        return CollectionConverters.asScala(given).toSeq();
    }

    private String withVersionClauses(String text) {
        return AT_VERSION.matcher(text).replaceAll(found -> {
            String table = found.group(1);
            boolean isOurs = table != null && catalogOf(parts(table)) != null;
            return Matcher.quoteReplacement(
                isOurs ? table + " VERSION AS OF " + found.group(2) : found.group());
        });
    }

    private static List<String> parts(String names) {
        List<String> found = new ArrayList<>();
        ONE_NAME.matcher(names).results().map(each -> each.group())
            .map(each -> each.startsWith("`")
                ? each.substring(1, each.length() - 1).replace("``", "`") : each)
            .forEach(found::add);
        return found;
    }

    /** Return the catalog of deltasql to which a table belongs; null if it belongs to another. */
    private String catalogOf(List<String> parts) {
        String first = parts.size() < 2 ? null : parts.get(0);
        if (first != null && session.conf().get("spark.sql.catalog." + first, null) != null) {
            return isOurs(first) ? first : null;
        }
        String current = session.catalog().currentCatalog();
        return isOurs(current) ? current : null;
    }

    private boolean isOurs(String catalog) {
        String name = session.conf().get("spark.sql.catalog." + catalog, "");
        return name.startsWith("io.deltasql.spark.");
    }

    /** Return the current catalog, if it is one of deltasql, or else the only one of deltasql. */
    private String onlyCatalog() {
        String current = session.catalog().currentCatalog();
        if (isOurs(current)) {
            return current;
        }
        List<String> found = new ArrayList<>();
        CollectionConverters.asJava(session.conf().getAll()).forEach((key, value) -> {
            String name = key.replaceFirst("^spark\\.sql\\.catalog\\.", "");
            if (!name.equals(key) && !name.contains(".") && isOurs(name)) {
                found.add(name);
            }
        });
        if (found.size() > 1) {
            throw new IllegalArgumentException(
                "A transaction belongs to one catalog, and there are several: "
                    + String.join(", ", found) + ". Choose one with USE, or with CALL "
                    + found.get(0) + ".system.begin().");
        }
        return found.isEmpty() ? null : found.get(0);
    }
}
