//! Registrations.

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::{Client, NOTHING};
use crate::real::Error;

/// A registered runner as the administrator sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct Runner {
    /// The registration's id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// `online`, `idle`, `active` or `offline`.
    pub status: String,
    /// Whether a task was given to it lately.
    #[serde(default)]
    pub busy: bool,
    /// Whether an administrator switched it off.
    #[serde(default)]
    pub disabled: bool,
    #[serde(default)]
    labels: Vec<Label>,
}

#[derive(Debug, Clone, Deserialize)]
struct Label {
    name: String,
}

impl Runner {
    /// The labels it declared last.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|label| label.name.as_str())
    }

    /// Whether Gitea heard from it lately.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.status != "offline"
    }
}

impl Client {
    /// A token with which runners for all repositories register.
    ///
    /// # Errors
    /// The server refused.
    pub async fn registration_token(&self) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Token {
            token: String,
        }
        let answer = self.rest(Method::POST, "/admin/actions/runners/registration-token", NOTHING).await?;
        Ok(answer.json::<Token>()?.token)
    }

    /// Every runner.
    ///
    /// # Errors
    /// The server refused.
    pub async fn runners(&self) -> Result<Vec<Runner>, Error> {
        self.pages("/admin/actions/runners", "runners").await
    }

    /// Switches a runner off: it gets no more tasks.
    ///
    /// # Errors
    /// No such runner.
    pub async fn disable_runner(&self, id: i64) -> Result<(), Error> {
        self.rest(Method::PATCH, &format!("/admin/actions/runners/{id}"), Some(&json!({"disabled": true})))
            .await
            .map(drop)
    }

    /// Switches a runner on again.
    ///
    /// # Errors
    /// No such runner.
    pub async fn enable_runner(&self, id: i64) -> Result<(), Error> {
        self.rest(Method::PATCH, &format!("/admin/actions/runners/{id}"), Some(&json!({"disabled": false})))
            .await
            .map(drop)
    }

    /// Deletes a registration.
    ///
    /// # Errors
    /// No such runner.
    pub async fn delete_runner(&self, id: i64) -> Result<(), Error> {
        self.rest(Method::DELETE, &format!("/admin/actions/runners/{id}"), NOTHING).await.map(drop)
    }
}
