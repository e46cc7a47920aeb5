//! Parse and encode commit files, which have one JSON action per line.
use crate::actions::Action;
use crate::error::Error;

/// The maximum nesting of statistics. Columns are never nested this deep, and deeper JSON overflows
/// the stack of some readers.
const MAX_STATS_DEPTH: usize = 500;
/// The maximum length of a line. A schema with ten thousand columns takes only a few megabytes.
pub const MAX_LINE: usize = 64 << 20;

/// Parse the actions of a commit file; empty lines are skipped.
pub fn parse(data: &[u8]) -> Result<Vec<Action>, Error> {
    let mut actions = Vec::new();
    for (index, line) in data.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if line.len() > MAX_LINE {
            return Err(Error::Line {
                line: index + 1,
                column: 0,
                message: format!("a line of more than {} MiB", MAX_LINE >> 20),
            });
        }
        let action = serde_json::from_slice(line).map_err(|e| Error::of_line(index + 1, &e))?;
        check_stats(&action, index + 1)?;
        actions.push(action);
    }
    Ok(actions)
}

/// Encode the canonical commit file: commitInfo, protocol, metaData, then the rest in order.
pub fn encode<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Vec<u8> {
    let mut ordered: Vec<&Action> = actions.into_iter().collect();
    ordered.sort_by_key(|action| rank(action));
    let mut out = Vec::with_capacity(ordered.len() * 256);
    for action in ordered {
        encode_line(action, &mut out);
    }
    out
}

/// Append one action and a newline to `out`.
pub fn encode_line(action: &Action, out: &mut Vec<u8>) {
    // This cannot fail: all keys are strings, and the output is in memory.
    if serde_json::to_writer(&mut *out, action).is_ok() {
        out.push(b'\n');
    }
}

/// Reject statistics that are nested so deep that other readers of the log crash.
fn check_stats(action: &Action, line: usize) -> Result<(), Error> {
    let stats = match action {
        Action::Add(add) => &add.stats,
        Action::Remove(remove) => &remove.stats,
        _ => return Ok(()),
    };
    if stats.as_deref().is_some_and(nests_too_deep) {
        return Err(Error::Line {
            line,
            column: 0,
            message: format!("statistics nested more than {MAX_STATS_DEPTH} levels deep"),
        });
    }
    Ok(())
}

/// Return true if the JSON of statistics is nested too deep; brackets in strings do not count.
pub fn nests_too_deep(stats: &str) -> bool {
    if stats.len() <= MAX_STATS_DEPTH {
        return false;
    }
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    for byte in stats.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => depth += 1,
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_STATS_DEPTH {
            return true;
        }
    }
    false
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
