//! The whole way from texts to a configuration.
#![expect(clippy::unwrap_used, reason = "tests")]

mod nats;
mod pods;

use std::path::Path;

use super::raw::{Raw, Source};
use super::*;
use crate::args::SettingsArgs;

/// A configuration of one host that is complete, with its secret files in `dir`.
fn complete(dir: &Path) -> Vec<(String, String)> {
    let file = |name: &str, content: &str| {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    [
        ("COMPONENTS", "scheduler,local-worker".to_owned()),
        ("QUEUE", "embedded".to_owned()),
        ("IDENTITY_ISSUER", "built-in".to_owned()),
        ("STATE_DIR", dir.display().to_string()),
        ("GITEA_INSTANCE_URL", "https://gitea.example.org/".to_owned()),
        ("GITEA_RUNNER_UUID_FILE", file("uuid", "11111111-2222-4333-8444-555555555555\n")),
        ("GITEA_RUNNER_TOKEN_FILE", file("token", " s3cret-token \n")),
        ("TRUST_DOMAIN", "example.org".to_owned()),
        ("RUNNER_FACADE_URL", "https://127.0.0.1:8443".to_owned()),
        ("RUNNER_FACADE_SPIFFE_ID", "spiffe://example.org/gitea-dynamic-runner".to_owned()),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability", &"c".repeat(32))),
        ("ENVELOPE_KEY_FILE", file("envelope", &"e".repeat(32))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

fn with(mut variables: Vec<(String, String)>, changes: &[(&str, &str)]) -> Vec<(String, String)> {
    for (name, value) in changes {
        variables.retain(|(known, _)| known != name);
        variables.push(((*name).to_owned(), (*value).to_owned()));
    }
    variables
}

fn load(args: &SettingsArgs, variables: Vec<(String, String)>) -> (Raw, Result<Config, ConfigErrors>) {
    let raw = Raw::collect(args, variables.into_iter());
    let config = validate(&raw, Supplied::default());
    (raw, config)
}

/// What is wrong after these changes to a complete configuration, one text per error.
#[track_caller]
fn errors(changes: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let (_, config) = load(&SettingsArgs::default(), with(complete(dir.path()), changes));
    config.err().map(|e| e.0.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

#[track_caller]
fn one_error(changes: &[(&str, &str)], part: &str) {
    let errors = errors(changes);
    assert!(matches!(&errors[..], [only] if only.contains(part)), "{changes:?}: {errors:#?}");
}

/// §2.1, CFG-11: values, units, derived instance id, defaults.
#[test]
fn a_complete_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, config) = load(&SettingsArgs::default(), complete(dir.path()));
    let config = config.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.instance.as_str(), "f66f031b");
    assert_eq!(config.gitea.url.actions_base(), "https://gitea.example.org/api/actions");
    assert_eq!(config.gitea.token.expose(), "s3cret-token");
    assert_eq!(config.components.to_string(), "scheduler,local-worker");
    assert_eq!(config.limits.queue_wait.as_secs(), 3600);
    assert_eq!(config.limits.run, None);
    assert_eq!(config.facade.listen.to_string(), "0.0.0.0:8443");
    assert_eq!(config.labels.default_backend, None);
    assert!(raw.warnings.is_empty(), "{:?}", raw.warnings);
}

/// CFG-2: three missing settings are three messages of one start, in the order of the table.
#[test]
fn errors_come_together() {
    let all = errors(&[("GITEA_INSTANCE_URL", ""), ("RUNNER_FACADE_URL", " "), ("TRUST_DOMAIN", "")]);
    let names: Vec<_> = all.iter().map(|e| e.split(';').next().unwrap()).collect();
    assert_eq!(names, ["GITEA_INSTANCE_URL is required", "TRUST_DOMAIN is required", "RUNNER_FACADE_URL is required"]);
}

/// T44, CFG-1, CFG-2, CFG-4, CFG-9, CFG-10: each wrong value is one error that names the setting and its rule.
#[test]
fn wrong_values() {
    for bad in ["x", "0", "-1", "4.5", "99999999999"] {
        one_error(
            &[("LOCAL_CAPACITY", bad)],
            &format!("LOCAL_CAPACITY: {bad:?} is not accepted; it must be an integer from 1"),
        );
    }
    one_error(&[("CLAIM_LIMIT", "30")], "CLAIM_LIMIT: \"30\": it has no unit; it must be a duration with unit");
    one_error(&[("RUNNER_FACADE_URL", "http://a:1")], "RUNNER_FACADE_URL: \"http://a:1\": it is not https");
    one_error(
        &[("ENVELOPE_KEY_FILE", "/nowhere/key")],
        "read ENVELOPE_KEY_FILE: /nowhere/key: no such file or directory",
    );
    one_error(&[("GITEA_INSTANCE_URL", "http://git.example.org")], "in clear text; use https");
    one_error(&[("RUNNER_FACADE_SPIFFE_ID", "spiffe://other.org/x")], "is not inside TRUST_DOMAIN");
    one_error(&[("LOCAL_PROCESSES", "1")], "LOCAL_PROCESSES: \"1\" is not accepted; it must be an integer from 64 to");
    one_error(&[("LOCAL_SHARED", "/")], "LOCAL_SHARED: \"/\": / is the whole host");
    one_error(&[("LOCAL_SHARED", "/,/nowhere/shared")], "LOCAL_SHARED: \"/,/nowhere/shared\": / is the whole host");
    one_error(&[("LOCAL_SHARED", "/nowhere/shared:rw")], "LOCAL_SHARED: there is no /nowhere/shared");
    one_error(&[("DEFAULT_BACKEND", "vm")], "add vm-worker to COMPONENTS");
    one_error(&[("EXTRA_LABELS", "fast=local,big=pod")], "EXTRA_LABELS: backend pod");
    assert!(errors(&[("GITEA_INSTANCE_URL", "http://git.example.org"), ("ALLOW_PLAINTEXT", "true")]).is_empty());
}

/// CFG-9: what isolates jobs is judged as a whole before there is a registration.
#[test]
fn walls_are_judged_before_the_registration() {
    let judged = |name: &str, value: &str| {
        let (raw, _) = load(&SettingsArgs::default(), vec![(name.to_owned(), value.to_owned())]);
        validate::local_jobs(&raw).err().map(|errors| errors.to_string())
    };
    for (name, value) in [("LOCAL_SHARED", "/nowhere/shared"), ("LOCAL_USERS", "2000000-1999999")] {
        assert!(judged(name, value).is_some_and(|text| text.contains(name)), "{name}");
    }
    assert_eq!(judged("LOCAL_SHARED", "/usr"), None);
}

/// NEW-141: a password in a refused URL is not repeated.
#[test]
fn errors_show_no_password() {
    let errors = errors(&[("GITEA_INSTANCE_URL", "https://me:hunter2@git.example.org")]).join("\n");
    assert!(errors.contains("user or password") && !errors.contains("hunter2"), "{errors}");
}

/// CMP-3, CMP-8 and what this build cannot run: clear, with every missing setting, and nothing was opened.
#[test]
fn components_this_build_does_not_serve() {
    one_error(&[("COMPONENTS", "scheduler,foo")], "unknown controller component \"foo\"");
    let all = errors(&[("COMPONENTS", "all"), ("QUEUE", "jetstream"), ("IDENTITY_ISSUER", "workload-api")]).join("\n");
    for part in [
        "this build serves pod-worker and local-worker; vm-worker cannot run yet; set COMPONENTS=scheduler,",
        "OPENSANDBOX_API is required",
        "NATS_URL is required",
        "POD_EXECUTOR_IMAGE is required",
        "SPIRE_CLUSTER is required",
    ] {
        assert!(all.contains(part), "{part}\n---\n{all}");
    }
}

/// CFG-6, CFG-7: what no selected component looks at is not checked, and its secret file is not opened.
#[test]
fn unselected_components_are_not_looked_at() {
    let quiet = [("VM_RUNNER_LABEL", "vm2"), ("OPENSANDBOX_API_KEY_FILE", "/nowhere"), ("POD_CAPACITY", "x")];
    assert!(errors(&quiet).is_empty());
    let vm = errors(&[&quiet[..], &[("COMPONENTS", "scheduler,vm-worker")]].concat()).join("\n");
    // STATE_DIR belongs to local-worker, SPIFFE_ENDPOINT_SOCKET to the Workload API.
    let away = errors(&[("COMPONENTS", "scheduler,vm-worker"), ("STATE_DIR", "")]).join("\n");
    assert!(!away.contains("STATE_DIR is required") && !away.contains("SPIFFE_ENDPOINT_SOCKET is required"), "{away}");
    assert!(vm.contains("VM_RUNNER_LABEL: \"vm2\"") && vm.contains("read OPENSANDBOX_API_KEY_FILE: /nowhere"), "{vm}");
}

/// §2: default < file < environment < flag; the sources are told (CFG-8).
#[test]
fn precedence_and_sources() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gdr.toml");
    std::fs::write(&path, "local_capacity = 2\nlook_ahead = 3\nclaim_limit = \"3m\"\nextra_labels = [\"a=local\"]\n")
        .unwrap();
    let set = vec![("LOOK_AHEAD".to_owned(), "5".to_owned())];
    let args = SettingsArgs { config: Some(path.clone()), set, ..Default::default() };
    let variables = with(complete(dir.path()), &[("LOCAL_CAPACITY", "4"), ("LOOK_AHEAD", "4")]);
    let (raw, config) = load(&args, variables);
    let config = config.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((config.capacity.local.get(), config.capacity.look_ahead), (4, 5));
    assert_eq!(config.limits.claim.as_secs(), 180);
    let source = |name| raw.get(name).map(|(_, source)| source.clone());
    assert_eq!(source("LOCAL_CAPACITY"), Some(Source::Environment));
    assert_eq!(source("LOOK_AHEAD"), Some(Source::Flag));
    assert_eq!(source("CLAIM_LIMIT"), Some(Source::File(path)));
    assert_eq!(source("TERMINAL_GRACE"), Some(Source::Default));
    let shown = effective::text(&raw);
    assert!(shown.contains("(content not shown)") && !shown.contains("s3cret-token"), "{shown}");
    assert!(effective::json(&raw)["settings"].as_array().unwrap().len() == table::ROWS.len());
}

/// §2, NEW-139: unknown keys are errors, and so is a table; unknown variables of ours and plain secrets are warnings.
#[test]
fn strictness() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gdr.toml");
    std::fs::write(&path, "local_capactiy = 2\nLOOK_AHEAD = 1\n[queue]\nkind = 1\n").unwrap();
    let args = SettingsArgs { config: Some(path.clone()), ..Default::default() };
    let strange = [("NATS_PRODUCER_PASSWORD", "hunter2"), ("VM_CAPACTIY", "2"), ("NATS_PORT_4222_TCP", "x")];
    let (raw, config) = load(&args, with(complete(dir.path()), &strange));
    let errors = config.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(errors.contains("\"local_capactiy\" is not a setting; did you mean LOCAL_CAPACITY?"), "{errors}");
    assert!(
        errors.contains("\"LOOK_AHEAD\" is not a setting; write look_ahead in lower case")
            && errors.contains("queue is not a text"),
        "{errors}"
    );
    assert_eq!(raw.warnings.len(), 2, "{:?}", raw.warnings);
    assert!(!raw.warnings.join("").contains("hunter2"));

    std::fs::write(&path, "a = 1\nb = = 2\n").unwrap();
    let (_, config) = load(&args, complete(dir.path()));
    let errors = config.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(errors.contains("gdr.toml, line 2:"), "{errors}");
}

/// CFG-2: a file without an end ends the start, and not the memory of the host.
#[test]
fn a_settings_file_without_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let args = SettingsArgs { config: Some("/dev/zero".into()), ..Default::default() };
    let (_, config) = load(&args, complete(dir.path()));
    let errors = config.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(errors.contains("read --config: /dev/zero: it has more than 1048576 bytes"), "{errors}");
}

/// NEW-139: a setting that nothing looks at is told with what it waits for; a variable that any program may have is not, and
/// nothing is where the selection itself is wrong.
#[test]
fn settings_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let idle = [("NATS_URL", "nats://127.0.0.1:4222"), ("SPIFFE_ENDPOINT_SOCKET", "unix:///run/agent.sock")];
    let told = |changes: &[(&str, &str)]| {
        let (mut raw, _) = load(&SettingsArgs::default(), with(with(complete(dir.path()), &idle), changes));
        raw.warn_of_no_effect();
        raw.warnings
    };
    assert_eq!(told(&[]), ["NATS_URL (environment) has no effect: it counts with QUEUE=jetstream only"]);
    assert_eq!(told(&[("QUEUE", "jetstream")]), [""; 0]);
    assert_eq!(told(&[("COMPONENTS", "webhook")]), [""; 0]);
}

/// NEW-115, CFG-2: a base configuration that would end every executor ends the start, with its name and the rule; nothing
/// of its text is shown.
#[test]
fn the_runner_configuration_is_read_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let rule = "it must be an absolute path of a YAML mapping as `gitea-runner generate-config` prints";
    let list = file("list.yaml", "- hush\n");
    let told = errors(&[("GITEA_RUNNER_CONFIG", &list)]);
    assert_eq!(told, [format!("GITEA_RUNNER_CONFIG: {list:?}: it is no mapping; {rule}")]);
    let broken = errors(&[("GITEA_RUNNER_CONFIG", &file("broken.yaml", "runner: {envs: {TOKEN: hush\n"))]);
    assert!(broken[0].contains("line") && broken[0].ends_with(rule) && !broken[0].contains("hush"), "{broken:?}");
    one_error(&[("GITEA_RUNNER_CONFIG", "/no/such/file")], "read GITEA_RUNNER_CONFIG: /no/such/file: ");
    for good in ["", "log: {level: debug}\n"] {
        assert_eq!(errors(&[("GITEA_RUNNER_CONFIG", &file("good.yaml", good))]), [""; 0]);
    }
}

/// NEW-116, invariant 7: what jobs see of our environment is chosen here, and nothing else of it is kept.
#[test]
fn jobs_inherit_a_few_variables() {
    let dir = tempfile::tempdir().unwrap();
    let ours = [("PATH", "/usr/bin"), ("TZ", "UTC"), ("HOME", "/root"), ("SECRET", "x"), ("TERM", "dumb")];
    let (raw, config) = load(&SettingsArgs::default(), with(complete(dir.path()), &ours));
    let inherited: Vec<_> = config.unwrap().runner.environment.into_iter().collect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(inherited, [pair("PATH", "/usr/bin"), pair("TZ", "UTC")]);
    assert!(raw.warnings.is_empty(), "{:?}", raw.warnings);
}

/// CFG-9, NEW-31: what would end every task before it starts is refused; the shortest run limit is no such thing.
#[test]
fn a_limit_under_which_no_job_could_run() {
    let text = "\"10m\": it is out of range; it must be a duration with unit, above 10m to 30d";
    one_error(&[("GITEA_ENDLESS_TASK_TIMEOUT", "10m")], text);
    let reference = effective::reference();
    let row = reference.lines().find(|line| line.contains("GITEA_ENDLESS_TASK_TIMEOUT")).unwrap();
    assert!(row.contains("above 10m to 30d"), "{row}");
    assert!(errors(&[("GITEA_ENDLESS_TASK_TIMEOUT", "11m"), ("RUN_LIMIT", "1m")]).is_empty());
}

/// NEW-167: our cancel deadline lies below Gitea's zombie limit. NEW-17: a token that nothing uses is refused.
#[test]
fn a_setting_that_could_not_hold_is_refused() {
    assert!(errors(&[("CANCEL_GRACE", "5m"), ("GITEA_ZOMBIE_TASK_TIMEOUT", "6m")]).is_empty());
    one_error(&[("CANCEL_GRACE", "10m")], "CANCEL_GRACE: 600 s are not below GITEA_ZOMBIE_TASK_TIMEOUT, 600 s");
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "a-token").unwrap();
    one_error(&[("GITEA_API_TOKEN_FILE", token.to_str().unwrap())], "this build has no scan for orphaned jobs");
}

/// T44, CFG-2, CFG-9, F155: every setting of one host or of NATS that has a rule is wrong: each is told, by its name, all at once.
#[test]
fn every_setting_wrong_at_once() {
    use setting::When::{Always, JetStream, With};
    let one_host = |row: &&setting::Row| matches!(row.when, Always | JetStream | With(Component::LocalWorker));
    let bad = ["-1", "no such thing", "/no/such/file", "spire", "a,,b", "=", "x\u{e4}"];
    // What selects is right, or nobody would look at the rest.
    let ruled = table::ROWS.iter().filter(one_host).filter(|row| !matches!(row.name, "COMPONENTS" | "QUEUE"));
    let wrong: Vec<(&str, &str)> =
        ruled.filter_map(|row| Some((row.name, *bad.iter().find(|bad| (row.check)(bad).is_err())?))).collect();
    assert!(wrong.len() > 52, "only {} settings have a rule: {wrong:?}", wrong.len());
    let told = errors(&[&wrong[..], &[("QUEUE", "jetstream")]].concat());
    for (name, value) in &wrong {
        assert!(told.iter().any(|error| error.contains(name)), "{name}={value} is not among {told:#?}");
    }
}
