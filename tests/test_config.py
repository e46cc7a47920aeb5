"""Settings: every source, their precedence, and errors that name key, source and range."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from deltasql.config import Config, MirrorSettings, PoolSettings
from deltasql.config.problems import allowed_values, field_at, known_keys
from deltasql.config.sources import fingerprint
from deltasql.exceptions import MissingDriverError, TxnLogConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty working directory and configuration folder."""
    work, config_home = tmp_path / "work", tmp_path / "config"
    work.mkdir()
    (config_home / "deltasql").mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config_home))
    for name in ("DELTASQL_CONFIG", "DELTASQL_URI"):
        monkeypatch.delenv(name, raising=False)
    return config_home / "deltasql" / "config.toml"


def source_of(config: Config, key: str) -> str:
    return next(row.source for row in config.describe() if row.key == key)


def failure(**overrides: object) -> TxnLogConfigError:
    with pytest.raises(TxnLogConfigError) as caught:
        Config.load(**overrides)  # type: ignore[arg-type]
    return caught.value


def test_settings_without_a_source_are_defaults() -> None:
    config = Config.load()
    assert config == Config()
    assert (config.mirror.mode, config.store.synchronous) == ("sync", "full")
    assert config.table.in_commit_timestamps
    assert {row.source for row in config.describe()} == {"default"}
    assert all(row.value == row.default for row in config.describe())


def test_sources_have_the_documented_precedence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expect(value: int, source: str, **overrides: object) -> None:
        config = Config.load(**overrides)  # type: ignore[arg-type]
        assert config.pool.max_size == value
        assert source in source_of(config, "pool.max_size")

    expect(8, "default")
    home.write_text("[pool]\nmax_size = 11\ntimeout_s = 7\n")
    expect(11, "config.toml")
    Path("pyproject.toml").write_text("[tool.deltasql.pool]\nmax_size = 12\n")
    expect(12, "pyproject.toml [tool.deltasql]")
    Path("deltasql.yaml").write_text("pool:\n  max_size: 13\n")
    expect(13, "deltasql.yaml")
    Path("other.toml").write_text("[pool]\nmax_size = 14\n")
    monkeypatch.setenv("DELTASQL_CONFIG", "other.toml")
    expect(14, "other.toml")
    monkeypatch.setenv("DELTASQL_POOL__MAX_SIZE", "15")
    expect(15, "environment variable DELTASQL_POOL__MAX_SIZE")
    expect(16, "the call", pool__max_size=16)
    expect(17, "the call", pool={"max_size": 17})
    expect(18, "the call", pool=PoolSettings(max_size=18))
    # A source with higher precedence replaces keys, not sections.
    assert Config.load(pool=PoolSettings(max_size=18)).pool.timeout_s == 7


def test_constructor_reads_neither_variables_nor_files(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("deltasql.toml").write_text("[pool]\nmax_size = 3\n")
    monkeypatch.setenv("DELTASQL_POOL__MAX_SIZE", "4")
    assert Config().pool.max_size == 8
    assert Config(mirror=MirrorSettings(mode="off")).mirror.mode == "off"


def test_file_argument_overrides_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.toml").write_text("[retry]\nmax_attempts = 1\n")
    Path("b.yml").write_text("retry: {max_attempts: 2}\n")
    monkeypatch.setenv("DELTASQL_CONFIG", "a.toml")
    assert Config.load().retry.max_attempts == 1
    assert Config.load("b.yml").retry.max_attempts == 2


def test_variables_set_storage_options_and_catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("deltasql.toml").write_text(
        "[storage.options]\nallow_http = true\nAWS_REGION = 'eu'\n"
        "[catalogs]\nprod = 'deltasql://postgres/ann:hunter2@db/lake'\n"
    )
    monkeypatch.setenv("DELTASQL_STORAGE__OPTIONS__AWS_SECRET_ACCESS_KEY", "123")
    monkeypatch.setenv("DELTASQL_CATALOGS__DEV", "deltasql://sqlite/${DEV_DB:-dev.db}")
    config = Config.load()
    assert config.storage.plain_options() == {
        "allow_http": "true",
        "AWS_REGION": "eu",
        "aws_secret_access_key": "123",
    }
    assert config.catalog("dev").database == "dev.db"
    assert config.catalog("prod").password == "hunter2"


def test_secrets_are_masked_in_repr_and_description() -> None:
    config = Config(
        storage={"options": {"aws_secret_access_key": "hunter2", "region": "eu"}},
        catalogs={"prod": "deltasql://postgres/ann:hunter2@db/lake"},
    )
    assert "hunter2" not in f"{config!r} {config} {config.describe()} {config.storage!r}"
    rows = {row.key: row.value for row in config.describe()}
    assert rows["storage.options.aws_secret_access_key"] == "***"
    assert rows["storage.options.region"] == "eu"
    assert rows["catalogs.prod"] == "deltasql://postgres/ann:***@db/lake"


def test_unknown_catalog_error_suggests_a_similar_name() -> None:
    config = Config(catalogs={"production": "deltasql://postgres/lake"})
    with pytest.raises(TxnLogConfigError) as caught:
        config.catalog("prodution")
    assert "Did you mean 'production'" in caught.value.help


@pytest.mark.parametrize(
    ("overrides", "key", "message", "allowed"),
    [
        ({"pool__max_size": "x"}, "pool.max_size", "'x'", "a whole number from 1 to 1000"),
        ({"pool__max_size": 0}, "pool.max_size", "0", "a whole number from 1 to 1000"),
        ({"pool__timeout_s": 0}, "pool.timeout_s", "0", "a number above 0 to 3600"),
        ({"pool__health_check": "perhaps"}, "pool.health_check", "perhaps", "true or false"),
        ({"mirror__mode": "late"}, "mirror.mode", "'late'", "one of sync, async, off"),
        ({"retry__jitter": 2}, "retry.jitter", "2", "a number from 0 to 1"),
        ({"engine__memory_limit": "lots"}, "engine.memory_limit", "'lots'", "or unset"),
        ({"engine__memory_limit": "60%"}, "engine.memory_limit", "'60%'", "or unset"),
        ({"engine__threads": 0}, "engine.threads", "0", "a whole number from 1 to 1024, or unset"),
        ({"table__isolation_level": "Snapshot"}, "table.isolation_level", "'Snapshot'", "one of"),
        ({"pool": 4}, "pool", "4", "a section with min_size"),
        ({"catalogs": {"a": 5}}, "catalogs.a", "catalogs.a", "a mapping of names to strings"),
    ],
)
def test_invalid_value_error_names_key_source_and_range(
    overrides: dict[str, object], key: str, message: str, allowed: str
) -> None:
    error = failure(**overrides)
    assert (error.key, error.source) == (key, "the call")
    assert message in error.message
    assert allowed in (error.allowed or "")
    assert key in error.help


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"pool__min_size": 50}, "min_size 50 is above max_size 8"),
        ({"retry__initial_backoff_ms": 5000}, "above max_backoff_ms"),
    ],
)
def test_contradicting_values_are_rejected(overrides: dict[str, object], message: str) -> None:
    assert message in failure(**overrides).message


@pytest.mark.parametrize(
    ("overrides", "nearest"),
    [
        ({"pool__max_sise": 4}, "pool.max_size"),
        ({"pol__max_size": 4}, "pool"),
        ({"mirror": {"mod": "sync"}}, "mirror.mode"),
        ({"catalog": {"a": "b"}}, "catalogs"),
    ],
)
def test_unknown_key_error_suggests_a_similar_key(
    overrides: dict[str, object], nearest: str
) -> None:
    assert f"Did you mean {nearest}?" in failure(**overrides).help


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("DELTASQL_POOL__MAX_SIZE", "many", "pool.max_size 'many'"),
        ("DELTASQL_POOL__MAX_SISE", "4", "pool.max_sise"),
        ("DELTASQL_POL__MAX_SIZE", "4", "unknown setting pol"),
        ("DELTASQL_CATALOG__PROD", "deltasql://sqlite/x", "unknown setting catalog"),
    ],
)
def test_invalid_variable_error_names_the_variable(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    error = failure()
    assert message in error.message
    assert error.source == f"environment variable {variable}"


def test_section_variable_must_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTASQL_POOL", "four")
    assert "JSON" in failure().message


def test_variable_for_a_key_overrides_the_variable_for_its_section(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DELTASQL_POOL", '{"max_size": 4, "timeout_s": 2.5}')
    monkeypatch.setenv("DELTASQL_POOL__MAX_SIZE", "7")
    pool = Config.load().pool
    assert (pool.max_size, pool.timeout_s) == (7, 2.5)


def test_uri_variable_is_not_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTASQL_URI", "deltasql://sqlite/x.db")
    assert Config.load() == Config()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("deltasql.toml", "[pool\n", "not valid TOML"),
        ("deltasql.toml", "[pool]\nmax_size = 'x'\n", "pool.max_size 'x'"),
        ("deltasql.yaml", "pool: [", "not valid YAML at line"),
        ("deltasql.yaml", "- pool\n", "has no sections"),
        ("deltasql.yaml", "pool:\n  max_sise: 4\n", "unknown setting pool.max_sise"),
        ("pyproject.toml", "[tool.deltasql]\npool = 4\n", "pool 4"),
    ],
)
def test_invalid_file_error_names_the_file(name: str, text: str, message: str) -> None:
    Path(name).write_text(text)
    error = failure()
    assert message in error.message
    assert name in (error.source or "")


def test_unreadable_config_file_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTASQL_CONFIG", "missing.toml")
    assert "missing.toml" in failure().message
    Path("settings.ini").write_text("")
    monkeypatch.setenv("DELTASQL_CONFIG", "settings.ini")
    assert "neither TOML nor YAML" in failure().message
    monkeypatch.delenv("DELTASQL_CONFIG")
    Path("deltasql.toml").write_bytes(b"\xff")
    assert "not UTF-8" in failure().message
    Path("deltasql.yaml").write_text("")
    assert "both exist" in failure().message


def test_empty_yaml_file_sets_nothing() -> None:
    Path("deltasql.yaml").write_text("# nothing yet\n")
    assert Config.load() == Config()


def test_invalid_file_error_does_not_show_secrets() -> None:
    Path("deltasql.yaml").write_text("storage:\n  options: {key: hunter2]\n")
    error = failure()
    assert "hunter2" not in f"{error} {error.__cause__}"


def test_yaml_file_without_pyyaml_gives_the_install_command() -> None:
    Path("deltasql.yaml").write_text("pool: {max_size: 4}\n")
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from deltasql.config import Config\n"
        "from deltasql.exceptions import MissingDriverError\n"
        "try: Config.load()\n"
        "except MissingDriverError as error: print(error.help)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == MissingDriverError(extra="yaml").help


def test_settings_are_frozen_and_picklable() -> None:
    config = Config.load(pool__max_size=3)
    with pytest.raises(ValueError, match="frozen"):
        config.pool.max_size = 4
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert again.describe() == config.describe()


def test_every_key_has_a_description_and_a_range() -> None:
    for key in known_keys(Config):
        found = field_at(Config, key.split("."))
        assert found is not None
        assert allowed_values(found)
        assert "." not in key or found.description, key


def test_fingerprint_works_with_a_plain_dict_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    real, plain = fingerprint(), dict(os.environ)
    monkeypatch.setattr(os, "environ", plain)
    assert fingerprint() == real
    plain["DELTASQL_POOL__MAX_SIZE"] = "3"
    assert fingerprint() != real


def test_fingerprint_changes_with_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    monkeypatch.setenv("DELTASQL_POOL__MAX_SIZE", "3")
    changed = fingerprint()
    assert changed != before
    monkeypatch.setenv("DELTASQL_POOL__MAX_SIZE", "4")
    assert fingerprint() not in (before, changed)
    monkeypatch.delenv("DELTASQL_POOL__MAX_SIZE")
    assert fingerprint() == before
