//! What the far side says no to, or does not say.

use super::*;

/// A wrong and an outdated registration token.
#[tokio::test]
async fn refused_tokens() {
    for words in
        ["registration token not found", "runner registration token has been invalidated, please use the latest one"]
    {
        let (bench, gitea) = (Bench::new(), Gitea::start(Register::Refuse(words)).await);
        let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
        let expect = format!(
            "URL refused the registration token: {words}\n\
             tokens are replaced when a new one is made: {GET_TOKEN}\n\
             exit 1"
        );
        bench.judge(failed, None, &gitea.url, &expect);
    }
}

/// NEW-141: a server that repeats the token in its refusal does not get it into our text.
#[tokio::test]
async fn a_refusal_that_repeats_the_token() {
    let words = "rpc error: code = Internal desc = no owner for registration-token-of-the-test";
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Refuse(words)).await);
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let expect = "\
URL refused to register this runner: no owner for [redacted]
the words are Gitea's; its log says more
exit 1";
    bench.judge(failed, None, &gitea.url, expect);
}

/// The answer to Register is lost: the text says that a row may be left.
#[tokio::test]
async fn a_lost_answer() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Lost).await);
    let mut here = bench.here();
    here.gitea_patience = Duration::from_secs(1);
    let failed = bench.start(&bench.args(&gitea.url), &here).await;
    let expect = "\
URL did not answer the registration of gitea-dynamic-runner-ci@host: no answer within 1 s
start again; Gitea may now show an unused runner gitea-dynamic-runner-ci@host that is never online: delete it there (Site \
Administration → Actions → Runners)
exit 1";
    bench.judge(failed, None, &gitea.url, expect);
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 1);
}

const ANOTHER_ADDRESS: &str = "give --gitea the address as in the browser's start page, with its path if it has one; a \
                               login page or a proxy in front must let /api/actions pass";

/// Something answers, and it is no Gitea with Actions.
#[tokio::test]
async fn not_a_gitea() {
    let page = || async { Html("<html>Sign in</html>") };
    let to_login = || async { Redirect::to("https://login.example.org/start?token=hunter2") };
    let login = Router::new().fallback(page);
    let redirect = Router::new().fallback(to_login);
    let text = Router::new().fallback(|| async { "hello" });
    for (router, seen) in [
        (Router::new(), "there is no /api/actions below this address (HTTP 404)"),
        (login, "a web page came instead of an API's answer"),
        (redirect, "it sends us on to https://login.example.org/start"),
        (text, "HTTP 200 with text/plain"),
    ] {
        let (bench, url) = (Bench::new(), serve(router).await);
        let failed = bench.start(&bench.args(&url), &bench.here()).await;
        let expect = format!("URL answers, but not as a Gitea with Actions: {seen}\n{ANOTHER_ADDRESS}\nexit 1");
        bench.judge(failed, None, &url, &expect);
        assert!(!bench.path("state").exists());
    }
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Page).await);
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let expect = format!(
        "URL answers, but not as a Gitea with Actions: a web page came instead of an API's answer\n{ANOTHER_ADDRESS}\nexit 1"
    );
    bench.judge(failed, None, &gitea.url, &expect);
}

/// T31, NEW-11, F10: nothing listens; something listens and never answers.
#[tokio::test]
async fn unreachable() {
    let bench = Bench::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    let mut here = bench.here();
    here.gitea_patience = Duration::from_secs(1);
    for cause in ["no answer within 1 s", "connection refused"] {
        let (args, ends) = (bench.args(&url), Duration::from_secs(20));
        let failed = tokio::time::timeout(ends, bench.start(&args, &here)).await.unwrap();
        let expect = format!(
            "URL cannot be reached: {cause}\ncheck the address, and that this host reaches it: open it with curl\nexit 1"
        );
        bench.judge(failed, None, &url, &expect);
        assert!(!bench.path("state").exists());
        // The second time nothing listens any more.
        if cause.starts_with("no answer") {
            rustix::net::shutdown(&free, rustix::net::Shutdown::Both).unwrap();
        }
    }
}
