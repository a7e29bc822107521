//! The handlers: authentication, then the server's own rules.

#![expect(refining_impl_trait_internal, reason = "the handlers return plain messages")]

use std::sync::Arc;

use connectrpc::{RequestContext, Response, ServiceRequest, ServiceResult};
use runner_proto::ping::v1::{PingRequest, PingResponse, PingService};
use runner_proto::runner::v1::{
    DeclareRequest, DeclareResponse, FetchTaskRequest, FetchTaskResponse, RegisterRequest, RegisterResponse,
    RunnerService, UpdateLogRequest, UpdateLogResponse, UpdateTaskRequest, UpdateTaskResponse,
};

use jiff::Timestamp;

use super::refusal::Refusal;
use super::server::Server;
use super::shared::Shared;

/// The header that a newer Gitea adds to its Declare reply (§5).
const CAPABILITIES_HEADER: &str = "x-gitea-actions-capabilities";

/// Gitea's services over the shared memory.
#[derive(Clone)]
pub(crate) struct Handlers(pub(crate) Arc<Shared>);

impl Handlers {
    /// Runs a handler for the runner that the headers name.
    fn as_runner<R>(
        &self,
        context: &RequestContext,
        handle: impl FnOnce(&mut Server, i64, Timestamp) -> Result<R, Refusal>,
    ) -> ServiceResult<R> {
        let header = |name: &str| context.header(name).and_then(|value| value.to_str().ok());
        let (uuid, token) = (header("x-runner-uuid"), header("x-runner-token"));
        self.0.change(|world| {
            let now = world.clock.now();
            let server = &mut world.server;
            let handled = server.authenticate(uuid, token, now).and_then(|runner| handle(server, runner, now));
            handled.map(Response::new).map_err(|refusal| refusal.into_error(&server.rules))
        })
    }
}

impl RunnerService for Handlers {
    async fn register(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, RegisterRequest>,
    ) -> ServiceResult<RegisterResponse> {
        let request = request.to_owned_message();
        self.0.change(|world| {
            let runner = world.server.register(&request, world.clock.now());
            let runner = runner.map_err(|refusal| refusal.into_error(&world.server.rules))?;
            Response::ok(RegisterResponse { runner: Some(runner).into(), ..Default::default() })
        })
    }

    async fn declare(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, DeclareRequest>,
    ) -> ServiceResult<DeclareResponse> {
        let request = request.to_owned_message();
        let response = self.as_runner(&context, |server, runner, _| {
            let runner = server.declare(runner, &request)?;
            Ok(DeclareResponse { runner: Some(runner).into(), ..Default::default() })
        })?;
        Ok(match self.0.look(|world| world.server.told_capabilities()) {
            Some(capabilities) => response.with_header(CAPABILITIES_HEADER, capabilities),
            None => response,
        })
    }

    async fn fetch_task(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, FetchTaskRequest>,
    ) -> ServiceResult<FetchTaskResponse> {
        let request = request.to_owned_message();
        let fetch = || self.as_runner(&context, |server, runner, now| server.fetch_task(runner, &request, now));
        let mut changes = self.0.changes();
        let first = fetch()?;
        let poll = self.0.look(|world| world.server.settings.long_poll);
        let Some(poll) = poll.filter(|_| first.body.task.is_unset()) else { return Ok(first) };
        let uuid = context.header("x-runner-uuid").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let end = tokio::time::Instant::now() + poll;
        while tokio::time::timeout_at(end, changes.changed()).await.is_ok() {
            if self.0.look(|world| world.server.has_for(uuid, request.tasks_version)) {
                return fetch();
            }
        }
        fetch()
    }

    async fn update_task(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, UpdateTaskRequest>,
    ) -> ServiceResult<UpdateTaskResponse> {
        let request = request.to_owned_message();
        self.as_runner(&context, |server, runner, now| server.update_task(runner, &request, now))
    }

    async fn update_log(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, UpdateLogRequest>,
    ) -> ServiceResult<UpdateLogResponse> {
        let request = request.to_owned_message();
        self.as_runner(&context, |server, runner, now| server.update_log(runner, &request, now))
    }
}

impl PingService for Handlers {
    async fn ping(&self, _: RequestContext, request: ServiceRequest<'_, PingRequest>) -> ServiceResult<PingResponse> {
        let data = format!("Hello, {}!", request.to_owned_message().data);
        Response::ok(PingResponse { data, ..Default::default() })
    }
}
