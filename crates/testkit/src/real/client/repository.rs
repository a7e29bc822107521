//! Organisations, repositories, pushes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Client;
use crate::real::Error;

#[derive(Deserialize)]
struct Committed {
    commit: Commit,
}

#[derive(Deserialize)]
struct Commit {
    sha: String,
}

/// Whether a new repository has a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstCommit {
    Yes,
    No,
}

impl Client {
    /// Makes a private repository `owner/name` with a first commit on `main`, and the organisation if it is new.
    ///
    /// # Errors
    /// The name is not `owner/name`, is taken, or the server refused.
    pub async fn create_repository(&self, full_name: &str) -> Result<(), Error> {
        self.make(full_name, FirstCommit::Yes).await
    }

    /// The same without a commit, which costs a quarter of the time; the first push makes `main`.
    ///
    /// # Errors
    /// As for [`Client::create_repository`].
    pub async fn create_empty_repository(&self, full_name: &str) -> Result<(), Error> {
        self.make(full_name, FirstCommit::No).await
    }

    async fn make(&self, full_name: &str, first: FirstCommit) -> Result<(), Error> {
        let (owner, name) = full_name
            .split_once('/')
            .ok_or_else(|| Error::system("create a repository")(format!("{full_name:?} is not owner/name")))?;
        let body =
            json!({"name": name, "auto_init": first == FirstCommit::Yes, "default_branch": "main", "private": true});
        if owner == self.access.admin {
            return self.post::<Value>("/user/repos", &body).await.map(drop);
        }
        self.organisation(owner).await?;
        self.post::<Value>(&format!("/orgs/{owner}/repos"), &body).await.map(drop)
    }

    /// Commits files to `main` in one push, whether they exist or not; returns the commit's id. One push event.
    ///
    /// # Errors
    /// The server refused, for example because nothing changed.
    pub async fn push_files(&self, repository: &str, files: &[(&str, &str)]) -> Result<String, Error> {
        self.commit(repository, json!({ "branch": "main" }), files).await
    }

    /// The same to a new branch, which begins at the head of `main`.
    ///
    /// # Errors
    /// As for [`Client::push_files`].
    pub async fn push_branch(&self, repository: &str, name: &str, files: &[(&str, &str)]) -> Result<String, Error> {
        self.commit(repository, json!({ "branch": "main", "new_branch": name }), files).await
    }

    async fn commit(&self, repository: &str, mut body: Value, files: &[(&str, &str)]) -> Result<String, Error> {
        let files: Vec<Value> = files
            .iter()
            .map(|(path, text)| json!({"operation": "upload", "path": path, "content": STANDARD.encode(text)}))
            .collect();
        body["message"] = json!("push files");
        body["files"] = json!(files);
        let answer: Committed = self.post(&format!("/repos/{repository}/contents"), &body).await?;
        Ok(answer.commit.sha)
    }

    /// Commits one file to `main`; returns the commit's id.
    ///
    /// # Errors
    /// As for [`Client::push_files`].
    pub async fn put_file(&self, repository: &str, path: &str, text: &str) -> Result<String, Error> {
        self.push_files(repository, &[(path, text)]).await
    }

    /// The head of a branch.
    ///
    /// # Errors
    /// No such branch.
    pub async fn branch(&self, repository: &str, name: &str) -> Result<String, Error> {
        let answer: Value = self.get(&format!("/repos/{repository}/branches/{name}")).await?;
        Ok(answer["commit"]["id"].as_str().unwrap_or_default().to_owned())
    }

    /// Forks a repository to an organisation, which is made if it is new; returns the fork's full name.
    ///
    /// # Errors
    /// No such repository, or it is forked there already.
    pub async fn fork(&self, repository: &str, organisation: &str) -> Result<String, Error> {
        self.organisation(organisation).await?;
        let body = json!({ "organization": organisation });
        let answer: Value = self.post(&format!("/repos/{repository}/forks"), &body).await?;
        Ok(answer["full_name"].as_str().unwrap_or_default().to_owned())
    }

    /// Opens a pull request to `main` from `branch` or `owner:branch`.
    ///
    /// # Errors
    /// The server refused.
    pub async fn open_pull_request(&self, repository: &str, head: &str) -> Result<(), Error> {
        let body = json!({"base": "main", "head": head, "title": "please take this"});
        self.post::<Value>(&format!("/repos/{repository}/pulls"), &body).await.map(drop)
    }

    async fn organisation(&self, name: &str) -> Result<(), Error> {
        match self.post::<Value>("/orgs", &json!({ "username": name })).await {
            // 422: the organisation exists.
            Ok(_) | Err(Error::Status { status: 422, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The clone URL with the administrator's password inside.
    #[must_use]
    pub fn git_url(&self, repository: &str) -> String {
        let address = self.access.url.replacen("http://", "", 1);
        format!("http://{}:{}@{address}/{repository}.git", self.access.admin, self.access.password)
    }
}
