//! Replay of commits into the state of a table.
#![allow(clippy::unwrap_used)]
use deltasql_core::codec::parse;
use deltasql_core::error::Error;
use deltasql_core::replay::TableState;

fn replay(commits: &[&str]) -> TableState {
    let mut state = TableState::default();
    for (version, lines) in (0..).zip(commits) {
        state
            .apply(version, &parse(lines.as_bytes()).unwrap())
            .unwrap();
    }
    state
}

fn add(path: &str, dv: Option<&str>) -> String {
    let dv = dv.map_or(String::new(), |dv| {
        format!(r#","deletionVector":{{"storageType":"i","pathOrInlineDv":"{dv}","sizeInBytes":1,"cardinality":1}}"#)
    });
    format!(
        r#"{{"add":{{"path":"{path}","partitionValues":{{}},"size":1,"modificationTime":0,"dataChange":true{dv}}}}}"#
    ) + "\n"
}

fn remove(path: &str, dv: Option<&str>) -> String {
    add(path, dv).replace("\"add\"", "\"remove\"")
}

fn paths(state: &TableState) -> Vec<String> {
    state.files().iter().map(|file| file.path.clone()).collect()
}

#[test]
fn removed_file_leaves_a_tombstone_and_may_be_added_again() {
    let gone = replay(&[&add("a", None), &remove("a", None)]);
    assert_eq!((gone.num_files(), gone.tombstones().len()), (0, 1));
    let back = replay(&[&add("a", None), &remove("a", None), &add("a", None)]);
    assert_eq!(
        (paths(&back), back.tombstones().len()),
        (vec!["a".to_owned()], 0)
    );
}

#[test]
fn new_deletion_vector_is_a_new_logical_file() {
    let swap = remove("a", None) + &add("a", Some("x"));
    let reversed = add("a", Some("x")) + &remove("a", None);
    for commit in [swap, reversed] {
        let state = replay(&[&add("a", None), &commit]);
        assert_eq!(state.num_files(), 1);
        assert!(state.files()[0].deletion_vector.is_some());
        assert_eq!(state.tombstones().len(), 1);
    }
}

#[test]
fn latest_txn_domain_protocol_and_metadata_win() {
    let state = replay(&[
        "{\"protocol\":{\"minReaderVersion\":1,\"minWriterVersion\":2}}\n{\"metaData\":{\"id\":\"a\",\"schemaString\":\"{}\"}}\n{\"txn\":{\"appId\":\"etl\",\"version\":9}}\n{\"domainMetadata\":{\"domain\":\"d\",\"configuration\":\"1\"}}\n{\"commitInfo\":{\"operation\":\"CREATE\"}}",
        "{\"metaData\":{\"id\":\"b\",\"schemaString\":\"{}\"}}\n{\"txn\":{\"appId\":\"etl\",\"version\":3}}\n{\"domainMetadata\":{\"domain\":\"d\",\"configuration\":\"1\",\"removed\":true}}",
    ]);
    assert_eq!(state.metadata.unwrap().id, "b");
    assert_eq!(state.protocol.unwrap().min_writer_version, 2);
    assert_eq!(state.txns["etl"].version, 3);
    assert!(state.domains.is_empty());
    assert!(state.commit_info.is_none());
}

#[test]
fn gap_in_the_versions_is_rejected_and_changes_nothing() {
    let mut state = replay(&[&add("a", None)]);
    let error = state.apply(2, &parse(add("b", None).as_bytes()).unwrap());
    assert_eq!(
        error,
        Err(Error::Version {
            expected: 1,
            found: 2
        })
    );
    assert_eq!(paths(&state), ["a"]);
}
