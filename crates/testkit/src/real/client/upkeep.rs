//! What becomes of runs, repositories and registrations, and the webhooks that were recorded about them.

use http::Method;
use serde_json::{Value, json};

use super::{Client, NOTHING};
use crate::real::Error;

impl Client {
    /// Deletes a run that has ended.
    ///
    /// # Errors
    /// No such run, or it has not ended.
    pub async fn delete_run(&self, repository: &str, run: i64) -> Result<(), Error> {
        self.rest(Method::DELETE, &format!("/repos/{repository}/actions/runs/{run}"), NOTHING).await.map(drop)
    }

    /// Deletes a repository.
    ///
    /// # Errors
    /// No such repository.
    pub async fn delete_repository(&self, repository: &str) -> Result<(), Error> {
        self.rest(Method::DELETE, &format!("/repos/{repository}"), NOTHING).await.map(drop)
    }

    /// Renames a repository within its owner.
    ///
    /// # Errors
    /// The name is taken.
    pub async fn rename_repository(&self, repository: &str, name: &str) -> Result<(), Error> {
        self.rest(Method::PATCH, &format!("/repos/{repository}"), Some(&json!({ "name": name }))).await.map(drop)
    }

    /// Gives a repository to an organisation.
    ///
    /// # Errors
    /// No such organisation, or it has one of this name.
    pub async fn transfer_repository(&self, repository: &str, organisation: &str) -> Result<(), Error> {
        self.post::<Value>(&format!("/repos/{repository}/transfer"), &json!({ "new_owner": organisation }))
            .await
            .map(drop)
    }

    /// A token with which runners of one scope register: `orgs/NAME` or `repos/OWNER/NAME`.
    ///
    /// # Errors
    /// No such scope.
    pub async fn registration_token_of(&self, scope: &str) -> Result<String, Error> {
        let path = format!("/{scope}/actions/runners/registration-token");
        let token: Value = self.rest(Method::POST, &path, NOTHING).await?.json()?;
        Ok(token["token"].as_str().unwrap_or_default().to_owned())
    }

    /// Has Gitea record the webhooks of a repository, see [`Client::deliveries`]. They are sent to Gitea itself, which
    /// takes no notice: only the record counts.
    ///
    /// # Errors
    /// No such repository.
    pub async fn record_webhooks(&self, repository: &str) -> Result<(), Error> {
        let config = json!({"url": format!("{}/api/healthz", self.access.url), "content_type": "json"});
        let hook = json!({
            "type": "gitea", "active": true, "events": ["workflow_job", "workflow_run"], "config": config,
        });
        self.post::<Value>(&format!("/repos/{repository}/hooks"), &hook).await.map(drop)
    }

    /// The webhooks recorded in the repository of a job so far: event and payload.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn deliveries(&self, job: i64) -> Result<Vec<(String, String)>, Error> {
        self.database.deliveries(job)
    }

    /// The id of a registration.
    ///
    /// # Errors
    /// No such registration, or the database cannot be read.
    pub fn runner_id(&self, uuid: &str) -> Result<i64, Error> {
        self.database.runner(uuid)
    }
}
