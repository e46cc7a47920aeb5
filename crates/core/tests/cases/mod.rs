//! The number of inputs of a property test, and their seed.
use std::env;

use proptest::test_runner::{Config, RngSeed};

/// The same inputs in every run; with `DELTASQL_EXPLORE`, ten times as many random inputs.
pub fn cases(count: u32) -> Config {
    let explores = env::var_os("DELTASQL_EXPLORE").is_some_and(|value| !value.is_empty());
    let (cases, rng_seed) = match explores {
        true => (count * 10, RngSeed::Random),
        false => (count, RngSeed::Fixed(1)),
    };
    Config {
        cases,
        rng_seed,
        ..Config::default()
    }
}
