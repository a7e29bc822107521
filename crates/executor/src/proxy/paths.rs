//! Where a request on the loopback address goes. Pure.
//!
//! Held here: what the executor's own credential opens at the facade (RunnerService, the executor's routes) is never
//! reached through the streaming way, however the path is spelled; there a job would need no loopback token.

use forward::path::{self, Malformed};
use http::Method;

/// The procedures of RunnerService that a runner uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Procedure {
    /// Refused by the facade always.
    Register,
    /// Once, at the runner's start.
    Declare,
    /// Until it has its task.
    FetchTask,
    /// State of the task.
    UpdateTask,
    /// Rows of its log.
    UpdateLog,
}

impl Procedure {
    const BASE: &str = "/api/actions/runner.v1.RunnerService/";

    fn of_path(path: &str) -> Option<Self> {
        match path.strip_prefix(Self::BASE)? {
            "Register" => Some(Self::Register),
            "Declare" => Some(Self::Declare),
            "FetchTask" => Some(Self::FetchTask),
            "UpdateTask" => Some(Self::UpdateTask),
            "UpdateLog" => Some(Self::UpdateLog),
            _ => None,
        }
    }

    /// The path at the facade.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Register => "/api/actions/runner.v1.RunnerService/Register",
            Self::Declare => "/api/actions/runner.v1.RunnerService/Declare",
            Self::FetchTask => "/api/actions/runner.v1.RunnerService/FetchTask",
            Self::UpdateTask => "/api/actions/runner.v1.RunnerService/UpdateTask",
            Self::UpdateLog => "/api/actions/runner.v1.RunnerService/UpdateLog",
        }
    }
}

/// What is done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// A RunnerService call; needs the loopback token.
    Rpc(Procedure),
    /// Streamed to the facade.
    Stream,
    /// Streamed, and the base URL in a JSON reply becomes our own address (NEW-110).
    Artifacts,
    /// The path has no single meaning; the facade would refuse it as well (NEW-97).
    Malformed(Malformed),
    /// Not for a job.
    Forbidden,
}

/// The route of a request target.
pub(crate) fn route(method: &Method, raw_path: &str) -> Route {
    if let Some(procedure) = Procedure::of_path(raw_path) {
        return if method == Method::POST { Route::Rpc(procedure) } else { Route::Forbidden };
    }
    let segments = match path::parse(raw_path) {
        Ok(segments) => segments,
        Err(problem) => return Route::Malformed(problem),
    };
    let ours = |prefix| segments.starts_with_ignoring_case(prefix);
    if ours(&["api", "actions"]) || ours(&["executor", "v1"]) {
        Route::Forbidden
    } else if answers_with_urls(method, raw_path) {
        Route::Artifacts
    } else {
        Route::Stream
    }
}

/// The artifact calls whose JSON replies carry absolute URLs; the calls that carry bodies are not among them.
fn answers_with_urls(method: &Method, path: &str) -> bool {
    const V3: &str = "/api/actions_pipeline/_apis/pipelines/workflows/";
    const V4: &str = "/twirp/github.actions.results.api.v1.ArtifactService/";
    if let Some(call) = path.strip_prefix(V4) {
        return method == Method::POST
            && matches!(
                call,
                "CreateArtifact" | "FinalizeArtifact" | "ListArtifacts" | "GetSignedArtifactURL" | "DeleteArtifact"
            );
    }
    let Some(call) = path.strip_prefix(V3) else { return false };
    call.ends_with("/artifacts") || (method == Method::GET && call.ends_with("/download_url"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &Method, path: &str, expect: Route) {
        assert_eq!(route(method, path), expect, "{method} {path}");
    }

    #[test]
    fn procedures() {
        check(&Method::POST, "/api/actions/runner.v1.RunnerService/Declare", Route::Rpc(Procedure::Declare));
        check(&Method::POST, "/api/actions/runner.v1.RunnerService/UpdateLog", Route::Rpc(Procedure::UpdateLog));
        check(&Method::GET, "/api/actions/runner.v1.RunnerService/Declare", Route::Forbidden);
        for procedure in
            [Procedure::Register, Procedure::Declare, Procedure::FetchTask, Procedure::UpdateTask, Procedure::UpdateLog]
        {
            check(&Method::POST, procedure.path(), Route::Rpc(procedure));
        }
    }

    /// NEW-117: no spelling of the executor's own routes passes with the capability but without the loopback token.
    #[test]
    fn own_routes() {
        for path in [
            "/executor/v1/report",
            "/executor/v1/ready",
            "/Executor/V1/report",
            "/executor/%76%31/report",
            "/executor/v1/",
            "/api/actions/runner.v1.RunnerService/Declare/",
            "/api/actions/runner.v1.RunnerService/%44eclare",
            "/API/Actions/runner.v1.RunnerService/Declare",
            "/api/actions",
        ] {
            check(&Method::POST, path, Route::Forbidden);
        }
        for path in [
            "//executor//v1/report",
            "/x/../executor/v1/report",
            "/executor%2Fv1/report",
            "/executor%252Fv1/report",
            "/executor\\v1\\report",
            "/./api/actions/ping.v1.PingService/Ping",
            "*",
        ] {
            let route = route(&Method::POST, path);
            assert!(matches!(route, Route::Malformed(_)), "{path}: {route:?}");
        }
    }

    #[test]
    fn streams() {
        for path in [
            "/lab/once.git/info/refs",
            "/lab/once/git-upload-pack",
            "/api/v1/repos/lab/once",
            "/executor/v2/info/refs",
            "/api/actions_pipeline/_apis/pipelines/workflows/57/jobs/1/steps/0/summary",
            "/api/actions_pipeline/_apis/pipelines/workflows/57/artifacts/9/download",
            "/twirp/github.actions.results.api.v1.ArtifactService/DownloadArtifact",
        ] {
            check(&Method::GET, path, Route::Stream);
        }
        let upload = "/twirp/github.actions.results.api.v1.ArtifactService/UploadArtifact";
        check(&Method::PUT, upload, Route::Stream);
    }

    /// NEW-110, F84: the calls whose replies name URLs.
    #[test]
    fn artifacts() {
        let run = "/api/actions_pipeline/_apis/pipelines/workflows/57/artifacts";
        check(&Method::POST, run, Route::Artifacts);
        check(&Method::GET, run, Route::Artifacts);
        check(&Method::GET, &format!("{run}/ab12/download_url"), Route::Artifacts);
        let v4 = "/twirp/github.actions.results.api.v1.ArtifactService";
        check(&Method::POST, &format!("{v4}/CreateArtifact"), Route::Artifacts);
        check(&Method::POST, &format!("{v4}/GetSignedArtifactURL"), Route::Artifacts);
    }
}
