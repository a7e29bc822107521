//! Who may call RunnerService at the loopback address, and how. A script in the runner's place calls and tells by the paths
//! of ordinary requests what it was answered.

use std::os::unix::fs::PermissionsExt;

use executor::Starter;

use crate::double::{Act, Facade, Seen};
use crate::world::{Run, limits, steps};

const SCRIPT: &str = r#"#!/bin/sh
value() { sed -n "s/.*\"$1\": \"\(.*\)\".*/\1/p" .runner; }
own=$(value address) uuid=$(value uuid) token=$(value token)
told() { curl -sS -o /dev/null "$own/told/$1/$2"; }
rpc=$own/api/actions/runner.v1.RunnerService
call() { name=$1; shift; told "$name" "$(curl -sS -o /dev/null -w '%{http_code}' -X POST "$@" "$rpc/FetchTask")"; }
form='content-type: application/proto'
call runner -H "x-runner-uuid: $uuid" -H "x-runner-token: $token" -H "$form"
call without-token -H "x-runner-uuid: $uuid" -H "$form"
call forged-token -H "x-runner-uuid: $uuid" -H 'x-runner-token: forged' -H "$form"
call two-tokens -H "x-runner-uuid: $uuid" -H "x-runner-token: $token" -H 'x-runner-token: forged' -H "$form"
call of-another -H 'x-runner-uuid: gitea-task-109' -H "x-runner-token: $token" -H "$form"
call json -H "x-runner-uuid: $uuid" -H "x-runner-token: $token" -H 'content-type: application/json' -d '{}'
call zipped -H "x-runner-uuid: $uuid" -H "x-runner-token: $token" -H "$form" -H 'content-encoding: gzip'
curl -sS -o /dev/null -D - -X POST -H "x-runner-uuid: $uuid" -H "x-runner-token: $token" -H "$form" "$rpc/Declare" |
    grep -qi '^x-gitea-actions-capabilities: cancelling' && told capabilities passed
"#;

/// NEW-25, NEW-112, NEW-117: assignment and loopback token, each once, open RunnerService, and nothing less does; calls in a
/// form in which a final one would pass by the spool are refused; the runner hears what Gitea can do.
#[tokio::test]
async fn only_the_runner_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("runner");
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let facade = Facade::start(steps(&["true"]), |_| Act::Serve).await;
    Run::start_with(Starter::Direct, script, &facade, limits()).code().await;
    let told =
        |seen| if let Seen::Stream { path, .. } = seen { path.strip_prefix("/told/").map(str::to_owned) } else { None };
    let told: Vec<String> = facade.seen().into_iter().filter_map(told).collect();
    let expected = [
        "runner/200",
        "without-token/401",
        "forged-token/401",
        "two-tokens/401",
        "of-another/401",
        "json/415",
        "zipped/501",
        "capabilities/passed",
    ];
    assert_eq!(told, expected);
}
