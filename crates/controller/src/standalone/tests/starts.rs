//! The good way, what a person reads, and what is decided where nobody says.

use super::*;

/// NEW-147: registers once, keeps what must be kept, and needs neither token file nor Gitea at the next start.
#[tokio::test]
async fn registers_once() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&format!("{}/", gitea.url));
    (args.capacity, args.label) = (Some("4".into()), vec!["fast".into(), "local".into()]);
    let first = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let config = &first.config;
    assert!(first.registered_now && first.runner.version == "1.0.8");
    assert_eq!((config.gitea.uuid.expose(), config.gitea.token.expose()), (UUID, TOKEN));
    assert_eq!(config.capacity.local.get(), 4);
    assert_eq!(config.labels.extra, [("fast".to_owned(), domain::id::Backend::Local)]);
    assert_eq!(config.labels.default_backend, Some(domain::id::Backend::Local));
    assert_eq!(config.facade.url.as_str(), format!("https://{}", config.facade.listen));
    assert_eq!(config.identity.trust_domain().to_string(), format!("{}.gdr.internal", config.instance));
    assert_eq!(config.facade.capability.current.expose().len(), 64);
    let request = gitea.seen.lock().unwrap()[0].clone();
    assert_eq!(request.labels, ["self-hosted", "local", "fast"]);
    assert_eq!(request.name, "gitea-dynamic-runner-ci@host");
    assert_eq!(request.version, format!("gitea-dynamic-runner/{}", env!("CARGO_PKG_VERSION")));
    assert_eq!((request.token.as_str(), request.ephemeral), (REGISTRATION_TOKEN, false));

    let before = bench.state().unwrap();
    for path in before.keys() {
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert!(mode == 0o600, "{} {mode:o}", path.display());
    }
    let folder = std::fs::metadata(bench.path("state")).unwrap().permissions().mode() & 0o777;
    assert_eq!(folder, 0o700);
    (args.registration_token_file, args.gitea) = (None, None);
    let second = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    assert!(!second.registered_now);
    assert_eq!(second.config.facade.listen, config.facade.listen);
    assert_eq!(second.config.identity.facade_id, config.identity.facade_id);
    assert_eq!(bench.state().unwrap(), before);
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 1);
}

/// What a person on a terminal reads.
#[tokio::test]
async fn greets_a_person() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    args.label = vec!["fast".into()];
    let prepared = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let instance = prepared.config.instance.to_string();
    let text = words::greeting(&prepared, &bench.here()).replace(&gitea.url, "URL").replace(&instance, "INSTANCE");
    let text =
        text.replace(&bench.dir.path().display().to_string(), "DIR").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let expect = "\
gitea-dynamic-runner VERSION

  Gitea      URL, registered now as gitea-dynamic-runner-ci@host
  Jobs       one job at a time, each in a process of its own that is thrown away at its end
  Isolation  full: a job sees its own processes and files only, and the host's read-only
  Runner     DIR/bin/gitea-runner (version 1.0.8)
  Identity   spiffe://INSTANCE.gdr.internal/ci/<owner>/<repository>/<job>
  State      DIR/state

Write one of these into a workflow: self-hosted, local, fast

  jobs:
    build:
      runs-on: local

What it is doing:  gitea-dynamic-runner status --state DIR/state
To stop: Ctrl-C. Running jobs go on, and the next start takes them up again.
";
    assert_eq!(text, expect);
    let root = || Surroundings { root: true, ..bench.here() };
    assert!(!words::greeting(&prepared, &root()).contains("WARNING"), "isolated jobs are not root");
    let mut prepared = prepared;
    prepared.config.local.isolation = crate::config::IsolationKind::None;
    let as_root = words::greeting(&prepared, &root());
    assert!(as_root.contains("  Isolation  NONE: "), "{as_root}");
    assert!(as_root.contains("\n  WARNING    started as root, and so is every job: "), "{as_root}");
}

/// CFG-8, NEW-139: what a start with these flags would use can be seen before and after the first one, and nothing is asked or
/// made.
#[tokio::test]
async fn the_settings_of_a_start() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    (args.capacity, args.label) = (Some("4".into()), vec!["fast".into()]);
    let of = |raw: &Raw, name| raw.get(name).map(|(text, source)| (text.to_owned(), source.to_string()));
    let told = |text: &str, source: &str| Some((text.to_owned(), source.to_owned()));

    let (before, _) = view(&args, &bench.here()).unwrap_or_else(|e| panic!("{e}"));
    assert!(!bench.path("state").exists() && gitea.rows.load(Ordering::SeqCst) == 0);
    assert_eq!(of(&before, "LOCAL_CAPACITY"), told("4", "flag"));
    assert_eq!(of(&before, "EXTRA_LABELS"), told("fast=local", "flag"));
    let file = StandaloneArgs { label: Vec::new(), ..args.clone() };
    let variables = vec![("EXTRA_LABELS".to_owned(), "slow=local".to_owned())];
    let (unsaid, _) =
        view(&file, &Surroundings { environment: variables, ..bench.here() }).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(of(&unsaid, "EXTRA_LABELS"), told("slow=local", "environment"));
    assert_eq!(of(&before, "QUEUE"), told("embedded", "standalone"));
    assert_eq!(of(&before, "TERMINAL_GRACE"), told("60s", "default"));
    assert_eq!(of(&before, "TRUST_DOMAIN"), None);

    let prepared = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let files = bench.state();
    args.gitea = None;
    let (after, judged) = view(&args, &bench.here()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(of(&after, "GITEA_INSTANCE_URL"), told(&gitea.url, "standalone"));
    assert_eq!(of(&after, "TRUST_DOMAIN"), told(&prepared.config.identity.trust_domain().to_string(), "standalone"));
    assert_eq!(of(&after, "RUNNER_FACADE_URL"), told(prepared.config.facade.url.as_str(), "standalone"));
    let registration = bench.path("state/registration.json").display().to_string();
    assert_eq!(of(&after, "GITEA_RUNNER_TOKEN_FILE"), told(&registration, "standalone"));
    assert!(!crate::config::effective::text(&after).contains(TOKEN));
    assert!(judged.is_ok_and(|()| bench.state() == files));
    // What the start would refuse is told here already.
    args.settings.set = vec![("LEADER_ELECTION".into(), "nats".into())];
    let (_, judged) = view(&args, &bench.here()).unwrap_or_else(|e| panic!("{e}"));
    let refused = judged.err().map(|errors| errors.to_string()).unwrap_or_default();
    assert!(refused.contains("LEADER_ELECTION: nats needs QUEUE=jetstream"), "{refused}");
}

/// The instance id of the first start is the folder's, whatever the environment of a later one lacks.
#[tokio::test]
async fn the_instance_is_remembered() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    args.settings.set = vec![("INSTANCE_ID".into(), "mine".into())];
    bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let later = bench.start(&bench.args(&gitea.url), &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(later.config.instance.to_string(), "mine");
    assert_eq!(later.config.identity.trust_domain().to_string(), "mine.gdr.internal");
}

/// Two users of one host are two runners by their names in Gitea as well.
#[test]
fn names_in_gitea() {
    let name = |user: &str, root| Surroundings { user: user.into(), root, ..Bench::new().here() }.runner_name();
    assert_eq!(name("root", true), "gitea-dynamic-runner@host");
    assert_eq!(
        [name("ann", false), name("1000", false)].map(|name| name.replace("gitea-dynamic-runner", "")),
        ["-ann@host", "-1000@host"]
    );
}

/// Where the state goes when nobody says.
#[test]
fn state_folders() {
    let bench = Bench::new();
    let folder = |variables: &[(&str, &str)], root| {
        let environment = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let here = Surroundings { environment, root, ..bench.here() };
        here.state_folder().map(|path| path.display().to_string()).map_err(|e| e.exit_code())
    };
    let home = ("HOME", "/home/me");
    assert_eq!(folder(&[home], false).as_deref(), Ok("/home/me/.local/state/gitea-dynamic-runner"));
    assert_eq!(folder(&[home, ("XDG_STATE_HOME", "/x")], false).as_deref(), Ok("/x/gitea-dynamic-runner"));
    let relative = folder(&[home, ("XDG_STATE_HOME", "x")], false);
    assert_eq!(relative.as_deref(), Ok("/home/me/.local/state/gitea-dynamic-runner"));
    assert_eq!(folder(&[home], true).as_deref(), Ok("/var/lib/gitea-dynamic-runner"));
    assert_eq!(folder(&[], false), Err(2));
}
