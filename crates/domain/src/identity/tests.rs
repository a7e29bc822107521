#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

fn rules() -> IdentityRules {
    IdentityRules { trust_domain: "example.org".parse().unwrap(), prefix: None, case: IdentityCase::Lower }
}

fn identity(rules: &IdentityRules, class: TrustClass, repository: &str, key: &str) -> String {
    rules.identity(class, &repository.parse().unwrap(), &key.parse().unwrap()).unwrap().to_string()
}

fn refused<T: FromStr>(text: &str) -> bool {
    text.parse::<T>().is_err()
}

/// T70, IDN-6, IDN-7: the vectors of §4.1.
#[test]
fn slugs_with_hash() {
    let (sixty, forty_seven) = ("a".repeat(60), "x".repeat(47));
    let vectors = [
        ("Run on Ubuntu", "Run-on-Ubuntu-8b7cd4c244fb".to_owned()),
        ("Run@on Ubuntu", "Run-on-Ubuntu-ab2f5101c569".to_owned()),
        ("publish image", "publish-image-3e72cdc4a97e".to_owned()),
        ("Publish image", "Publish-image-139c98c5c5cd".to_owned()),
        ("Build & test / linux", "Build-test-linux-1ad6fe5b4ae2".to_owned()),
        ("--x y--", "x-y-00c87e7457cd".to_owned()),
        (" ", "segment-36a9e7f1c95b".to_owned()),
        ("日本", "segment-cf2abf0c5be3".to_owned()),
        (&format!("{sixty} b"), format!("{}-09010a42075e", "a".repeat(48))),
        (&format!("{forty_seven} yz"), format!("{forty_seven}-be59053421d7")),
        ("publish-image", "publish-image".to_owned()),
    ];
    for (input, output) in vectors {
        assert_eq!(slug_with_hash(input), output, "{input:?}");
    }
}

/// T70, IDN-1, NEW-120, NEW-123: the table of §4.2.
#[test]
fn identities_of_the_table() {
    use TrustClass::{Trusted, Untrusted};
    let check = |class, repository, key, path: &str| {
        assert_eq!(identity(&rules(), class, repository, key), format!("spiffe://example.org/{path}"));
    };
    let images = "ci/acme/gitea-dynamic-runner/publish-images";
    check(Trusted, "acme/gitea-dynamic-runner", "publish-images", images);
    check(Trusted, "owner/repo", "publish", "ci/owner/repo/publish");
    check(Trusted, "Owner/Repo.X", "Build_1", "ci/owner/repo.x/Build_1");
    check(Untrusted, "owner/repo", "publish", "ci-untrusted/owner/repo/publish");
}

/// NEW-1, NEW-123, F129: a prefix comes first; `preserve` keeps the spelling.
#[test]
fn prefix_and_case_are_settings() {
    let blue = IdentityRules { prefix: Some("blue".parse().unwrap()), ..rules() };
    let text = identity(&blue, TrustClass::Untrusted, "Owner/repo", "a");
    assert_eq!(text, "spiffe://example.org/blue/ci-untrusted/owner/repo/a");
    let preserve = IdentityRules { case: IdentityCase::Preserve, ..rules() };
    assert_eq!(identity(&preserve, TrustClass::Trusted, "Owner/Repo.X", "a"), "spiffe://example.org/ci/Owner/Repo.X/a");
}

/// NEW-124: an ID that would be reserved or too long is refused.
#[test]
fn what_is_no_spiffe_id_is_refused() {
    let spire = IdentityRules { prefix: Some("spire".parse().unwrap()), ..rules() };
    let (repository, key): (Repository, JobKey) = ("owner/repo".parse().unwrap(), "a".parse().unwrap());
    assert!(spire.identity(TrustClass::Trusted, &repository, &key).is_err());
    let fixed = "spiffe://example.org/ci/owner/repo/".len();
    let of_length =
        |length: usize| rules().identity(TrustClass::Trusted, &repository, &"k".repeat(length).parse().unwrap());
    assert!(of_length(2048 - fixed).is_ok());
    assert!(of_length(2049 - fixed).is_err());
}

/// IDN-3: the pattern of job keys.
#[test]
fn job_keys() {
    for good in ["a", "_", "_1", "Build_1", "a-b", "true", "null"] {
        assert!(!refused::<JobKey>(good), "{good}");
    }
    for bad in ["", "Run on Ubuntu", "1a", "a.b", "-a", "a/b", "a\n", "ä", "a\u{430}", "..", "a%2f", " a"] {
        assert!(refused::<JobKey>(bad), "{bad:?}");
    }
}

/// IDN-4, F124: two legal segments, nothing else.
#[test]
fn repositories() {
    for good in ["owner/repo", "Owner/Repo.X", "a/.b", "a/...", "-/_"] {
        assert_eq!(good.parse::<Repository>().unwrap().to_string(), good);
    }
    for bad in ["invalid", "", "/", "a/b/c", "/b", "a/", "../b", "a/..", "a/.", "./a", "a b/c", "a/b?x", "ä/b", "a/b\0"]
    {
        assert!(refused::<Repository>(bad), "{bad:?}");
    }
}

/// IDN-5: the trust domain rules of SPIFFE; upper case is lowered in a setting.
#[test]
fn trust_domains() {
    assert_eq!("Example.ORG".parse::<TrustDomain>().unwrap().as_str(), "example.org");
    assert!(!refused::<TrustDomain>(&"a".repeat(255)));
    for bad in ["", "a/b", "a b", "A.B!", "exämple.org", "a:8080", "user@a", "a\n", "spiffe://a", &"a".repeat(256)] {
        assert!(refused::<TrustDomain>(bad), "{bad:?}");
    }
}

/// NEW-124, F124: what is no SPIFFE ID with a path is refused and never rewritten.
#[test]
fn spiffe_ids() {
    for good in ["spiffe://example.org/a", "spiffe://example.org/ci/Owner/x", "spiffe://example.org/spirex/a"] {
        assert_eq!(good.parse::<SpiffeId>().unwrap().as_str(), good);
    }
    for bad in [
        "",
        "example.org/a",
        "https://example.org/a",
        "SPIFFE://example.org/a",
        "spiffe://example.org",
        "spiffe://example.org/",
        "spiffe://example.org/a/",
        "spiffe://example.org//a",
        "spiffe://example.org/./a",
        "spiffe://example.org/a/..",
        "spiffe://example.org/a%20b",
        "spiffe://example.org/a?b",
        "spiffe://example.org/a#b",
        "spiffe://example.org/ä",
        "spiffe://Example.org/a",
        "spiffe://example.org:1/a",
        "spiffe://u@example.org/a",
        "spiffe:///a",
        "spiffe://example.org/spire",
        "spiffe://example.org/spire/agent",
        " spiffe://example.org/a",
    ] {
        assert!(refused::<SpiffeId>(bad), "{bad:?}");
    }
    assert_eq!("spiffe://example.org/a".parse::<SpiffeId>().unwrap().trust_domain(), "example.org");
}

/// NEW-14: an error shows the text escaped and not without end.
#[test]
fn errors_show_little() {
    let text = format!("\u{1b}[31m{}", "x".repeat(10_000));
    let error = text.parse::<JobKey>().unwrap_err().to_string();
    assert!(error.len() < 400 && !error.contains('\u{1b}'), "{error}");
}

/// ENV-8, ENV-9: recognised under any rules, and under no other name.
#[test]
fn an_identity_is_recognised_without_its_rules() {
    let given = |id: &str, repository: &str, key: &str| {
        let id = format!("spiffe://any.example/{id}").parse().unwrap();
        IdentityRules::some_rules_give(&id, &repository.parse().unwrap(), &key.parse().unwrap())
    };
    for good in [
        "ci/owner/repo/a",
        "ci/Owner/repo/a",
        "blue/ci/owner/repo/a",
        "ci-untrusted/owner/repo/a",
        "ci/ci/owner/repo/a",
    ] {
        assert!(given(good, "Owner/repo", "a"), "{good}");
    }
    for bad in [
        "owner/repo/a",
        "cd/owner/repo/a",
        "x/y/ci/owner/repo/a",
        "ci/owner/repo/a/b",
        "ci/OWNER/repo/a",
        "ci/owner/repo/A",
    ] {
        assert!(!given(bad, "Owner/repo", "a"), "{bad}");
    }
}

fn any_rules() -> impl Strategy<Value = IdentityRules> {
    let prefix = proptest::option::of(prop_oneof![Just("ci".to_owned()), "[a-z]{1,3}"]);
    let case = prop_oneof![Just(IdentityCase::Lower), Just(IdentityCase::Preserve)];
    (prefix, case).prop_map(|(prefix, case)| IdentityRules {
        prefix: prefix.map(|prefix| prefix.parse().unwrap()),
        case,
        ..rules()
    })
}

/// Few letters, so that near misses are frequent; owners that look like classes among them.
fn any_job() -> impl Strategy<Value = (TrustClass, String, String)> {
    let class = prop_oneof![Just(TrustClass::Trusted), Just(TrustClass::Untrusted)];
    let segment = || prop_oneof![Just("ci".to_owned()), Just("ci-untrusted".to_owned()), "[aA._-]{0,2}[aA_-]"];
    (class, segment(), segment(), "[aA_][aA_-]{0,2}")
        .prop_map(|(class, owner, name, key)| (class, format!("{owner}/{name}"), key))
}

/// Two jobs that have half of their parts in common.
fn any_two_jobs() -> impl Strategy<Value = [(TrustClass, String, String); 2]> {
    (any_job(), any_job(), any::<[bool; 3]>()).prop_map(|(one, other, [same_class, same_repository, same_key])| {
        let class = if same_class { one.0 } else { other.0 };
        let repository = if same_repository { one.1.clone() } else { other.1 };
        let key = if same_key { one.2.clone() } else { other.2 };
        [one, (class, repository, key)]
    })
}

proptest! {
    /// T70, IDN-10, F122, F123: two different jobs never share an identity; only Gitea's own spelling rule makes two
    /// equal.
    #[test]
    fn different_jobs_never_share_an_identity(rules in any_rules(), [one, other] in any_two_jobs()) {
        let id = |job: &(TrustClass, String, String)| identity(&rules, job.0, &job.1, &job.2);
        let name = |repository: &str| match rules.case {
            IdentityCase::Lower => repository.to_ascii_lowercase(),
            IdentityCase::Preserve => repository.to_owned(),
        };
        let same = one.0 == other.0 && name(&one.1) == name(&other.1) && one.2 == other.2;
        prop_assert_eq!(id(&one) == id(&other), same);
    }

    /// T70, NEW-124, F124: what is built is a SPIFFE ID, is recognised, and every text is read as itself or refused.
    #[test]
    fn every_identity_is_a_spiffe_id(rules in any_rules(), job in any_job(), text in ".{0,20}") {
        let id: SpiffeId = identity(&rules, job.0, &job.1, &job.2).parse().unwrap();
        prop_assert!(IdentityRules::some_rules_give(&id, &job.1.parse().unwrap(), &job.2.parse().unwrap()));
        let text = format!("spiffe://example.org/{text}");
        if let Ok(id) = text.parse::<SpiffeId>() {
            prop_assert_eq!(id.as_str(), text);
        }
    }
}

/// POD-5, F120, F124, F129: what is no job's identity under these rules is nobody's.
#[test]
fn rules_know_what_they_give() {
    let blue = IdentityRules { prefix: Some("blue".parse().unwrap()), ..rules() };
    let plain = rules();
    let rows = [
        (&blue, "example.org/blue/ci/acme/app/build", true),
        (&blue, "example.org/blue/ci-untrusted/acme/app/build", true),
        (&blue, "example.org/ci/acme/app/build", false),
        (&blue, "example.org/red/ci/acme/app/build", false),
        (&blue, "example.com/blue/ci/acme/app/build", false),
        (&blue, "example.org/blue/admin/acme/app/build", false),
        (&blue, "example.org/blue/ci/acme/app", false),
        (&blue, "example.org/blue/ci/acme/app/build/more", false),
        (&blue, "example.org/blue/ci/acme/app/7up", false),
        (&plain, "example.org/ci/Acme/app/build", true),
        (&plain, "example.org/blue/ci/Acme/app/build", false),
    ];
    for (rules, text, expected) in rows {
        assert_eq!(rules.give(&format!("spiffe://{text}").parse().unwrap()), expected, "{text}");
    }
    let id = identity(&blue, TrustClass::Untrusted, "Acme/app.x", "_a-1");
    assert!(blue.give(&id.parse().unwrap()));
}
