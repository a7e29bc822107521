//! Who gets which identity: by the event, by a policy file, and by the repository that stands behind a name.

use testkit::real::{Run, Settings, workplace};

use crate::world::{JOB, SOON, World, settings};

/// Prints the identity of its job.
const WORKFLOW: &str = "
on: push
jobs:
  build:
    runs-on: LABEL
    steps:
      - run: |
          id=$('PROGRAM' svid)
          echo \"I am $id\"
";

/// The path of the identity that a run's job had.
async fn identity(world: &World, run: &Run) -> String {
    world.ends(run, JOB, "success").await;
    world.identity_said(&world.job(run, "build").await).await
}

async fn run_of(world: &World, commit: &str) -> Run {
    world.gitea.runs_of_commit(&world.repository, commit, 1, SOON).await.unwrap().remove(0)
}

/// NEW-120, F120, T21: a pull request is untrusted, be it from a fork or from a branch of the repository itself, and
/// has the identity of the repository it is for.
#[tokio::test]
async fn pull_requests_are_untrusted() {
    let world = World::new(1).await;
    let workflow = world.filled_in(WORKFLOW).replace("on: push", "on: pull_request");
    let (gitea, repository) = (&world.gitea, &world.repository);
    gitea.push_files(repository, &[(".gitea/workflows/ci.yml", &workflow)]).await.unwrap();
    let untrusted = format!("ci-untrusted/{repository}/build");

    let own = gitea.push_branch(repository, "topic", &[("change", "of a colleague")]).await.unwrap();
    gitea.open_pull_request(repository, "topic").await.unwrap();
    assert_eq!(identity(&world, &run_of(&world, &own).await).await, untrusted);

    let stranger = format!("stranger-of-{}", world.label);
    let fork = gitea.fork(repository, &stranger).await.unwrap();
    let foreign = gitea.push_files(&fork, &[("change", "of a stranger")]).await.unwrap();
    gitea.open_pull_request(repository, &format!("{stranger}:main")).await.unwrap();
    assert_eq!(identity(&world, &run_of(&world, &foreign).await).await, untrusted);
}

/// NEW-121, F121, T21: with a policy file only the refs and workflow files that it names are trusted; the rest runs
/// untrusted.
#[tokio::test]
async fn a_policy_file_names_refs_and_workflow_files() {
    let dir = workplace(&std::env::temp_dir()).unwrap();
    let file = dir.path().join("trust.toml");
    let policy =
        "[[repository]]\nname = \"*/*\"\nrefs = [\"default\"]\nworkflows.build = [\"good.yml\", \"topic.yml\"]\n";
    std::fs::write(&file, policy).unwrap();
    let environment = [("TRUST_POLICY_FILE".to_owned(), file.display().to_string())].into();
    let world = World::of(Settings { environment, ..settings(2) }).await;
    let of_main = world.push(&[("good.yml", WORKFLOW), ("other.yml", WORKFLOW)]).await;
    let files = [(".gitea/workflows/topic.yml", &*world.filled_in(WORKFLOW))];
    let topic = world.gitea.push_branch(&world.repository, "topic", &files).await.unwrap();
    let of_topic = run_of(&world, &topic).await;
    let (trusted, untrusted) =
        (format!("ci/{}/build", world.repository), format!("ci-untrusted/{}/build", world.repository));
    assert_eq!(identity(&world, &of_main[0]).await, trusted);
    assert_eq!(identity(&world, &of_main[1]).await, untrusted);
    assert_eq!(identity(&world, &of_topic).await, untrusted);
}

/// NEW-122, F122, T21: a repository that is moved to another owner and renamed runs under its new names. Who takes its
/// old name does not get its identity, until an operator confirms.
#[tokio::test]
async fn a_name_that_was_given_up_keeps_its_identity() {
    let mut world = World::new(1).await;
    let old = world.repository.clone();
    let heir = format!("heir-of-{}", world.label);
    let first = world.push_one(WORKFLOW).await;
    assert_eq!(identity(&world, &first).await, format!("ci/{old}/build"));

    world.gitea.create_repository(&format!("{heir}/unused")).await.unwrap();
    world.gitea.transfer_repository(&old, &heir).await.unwrap();
    for name in ["repository", "moved"] {
        if name == "moved" {
            world.gitea.rename_repository(&world.repository, name).await.unwrap();
        }
        world.repository = format!("{heir}/{name}");
        let run = world.push_one(&format!("{WORKFLOW}      - run: echo {name}\n")).await;
        assert_eq!(identity(&world, &run).await, format!("ci/{heir}/{name}/build"));
    }

    world.gitea.create_repository(&old).await.unwrap();
    world.repository = old;
    let taken_over = world.push_one(WORKFLOW).await;
    world.ends(&taken_over, JOB, "failure").await;
    let job = world.job(&taken_over, "build").await;
    let page = world.page(&taken_over, &job).await.text();
    let remedy = format!("identity pins confirm {}", world.repository);
    assert!(page.contains("identity_pin_changed") && page.contains(&remedy), "{page}");
    assert!(!page.contains("I am"), "it ran: {page}");

    confirm(&world).await;
    world.gitea.rerun(&world.repository, taken_over.id).await.unwrap();
    assert_eq!(identity(&world, &taken_over).await, format!("ci/{}/build", world.repository));
}

/// What the operator does.
async fn confirm(world: &World) {
    let mut command = tokio::process::Command::new(world.controller.program());
    command.args(["identity", "pins", "confirm", &world.repository, "--state"]).arg(world.controller.state());
    let output = tokio::time::timeout(SOON, command.kill_on_drop(true).output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
}
