//! A commit file: one JSON action per line.
use crate::actions::Action;
use crate::error::Error;

/// Read the actions of a commit file; empty lines are passed over.
pub fn parse(data: &[u8]) -> Result<Vec<Action>, Error> {
    let mut actions = Vec::new();
    for (index, line) in data.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let action = serde_json::from_slice(line).map_err(|e| Error::of_line(index + 1, &e))?;
        actions.push(action);
    }
    Ok(actions)
}

/// Write the canonical commit file: commitInfo, protocol, metaData, then the rest in order.
pub fn encode<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Vec<u8> {
    let mut ordered: Vec<&Action> = actions.into_iter().collect();
    ordered.sort_by_key(|action| rank(action));
    let mut out = Vec::with_capacity(ordered.len() * 256);
    for action in ordered {
        encode_line(action, &mut out);
    }
    out
}

/// Write one action and its line end.
pub fn encode_line(action: &Action, out: &mut Vec<u8>) {
    // Keys are strings and the sink is memory: there is nothing left that can fail.
    if serde_json::to_writer(&mut *out, action).is_ok() {
        out.push(b'\n');
    }
}

// In-commit timestamps require commitInfo to be the first action.
fn rank(action: &Action) -> u8 {
    match action {
        Action::CommitInfo(_) => 0,
        Action::Protocol(_) => 1,
        Action::Metadata(_) => 2,
        _ => 3,
    }
}
