//! Values that the chart is tried with: what it refuses, and what it makes of others.

/// Values that the schema refuses, each set over ones that are right, and what it says of them.
pub(super) const WRONG: [(&str, &str); 27] = [
    ("images.executor=registry.example.org/x:latest", "/images/executor"),
    ("gitea.url=git.example.org", "/gitea/url"),
    ("gitea.url=http://git.example.org", "/gitea/url"),
    ("gitea.url=https://git.example.org/api/v1", "/gitea/url"),
    ("gitea.endlessTaskTimeout=5m", "/gitea/endlessTaskTimeout"),
    ("gitea.endlessTaskTimeout=10m", "/gitea/endlessTaskTimeout"),
    ("gitea.zombieTaskTimeout=30s", "/gitea/zombieTaskTimeout"),
    ("nats.url=http://nats.example.org", "/nats/url"),
    ("nats.url=nats://nats.example.org:4222", "/nats/url"),
    ("nats.url=tls://user:password@nats.example.org", "/nats/url"),
    ("nats.stream=a.b", "/nats/stream"),
    ("nats.subjectBase=a..b", "/nats/subjectBase"),
    ("identity.volume=emptyDir", "/identity/volume"),
    ("identity.className=", "/identity"),
    ("identity.cluster=", "/identity"),
    ("identity.means=spire-server", "/identity/serverSocketGroup"),
    ("executors.podSecurity=none", "/executors/podSecurity"),
    ("settings.log_level=debug", "log_level"),
    ("settings.POD_CAPACITY=3", "/settings/POD_CAPACITY"),
    ("settings.STATE_DIR=/var/lib/x", "/settings/STATE_DIR"),
    ("settings.IDENTITY_ISSUER=built-in", "/settings/IDENTITY_ISSUER"),
    ("settings.DEFAULT_BACKEND=local", "/settings/DEFAULT_BACKEND"),
    ("settings.EXTRA_LABELS=big=vm", "/settings/EXTRA_LABELS"),
    ("settings.GITEA_API_TOKEN_FILE=/x", "/settings/GITEA_API_TOKEN_FILE"),
    ("terminationGracePeriodSeconds=115", "/terminationGracePeriodSeconds"),
    ("nodesOfJobs=elsewhere", "/nodesOfJobs"),
    ("gitea.token=abc", "token"),
];

/// Values as JSON that are right one by one and cannot work together, each set over ones that are right, and what the chart
/// says of them. It is rendered into the namespace `default`.
pub(super) const TOGETHER: [(&str, &str); 13] = [
    // NEW-70, NEW-78: no namespace but a privileged one admits such Pods.
    (
        r#"executors={"privilegedPolicy":"[[privileged]]\nnode_selector = { p = \"\" }"}"#,
        "namespace gitea-actions has restricted (executors.podSecurity), so every such job would end with config_error; \
         set executors.podSecurity=privileged, or take the policy out",
    ),
    (
        r#"executors={"privilegedPolicy":"[[privileged]]\nnode_selector = { p = \"\" }","podSecurity":"baseline","createNamespace":false}"#,
        "namespace gitea-actions has baseline",
    ),
    (
        r#"createReleaseNamespace=true,executors={"namespace":"default","privilegedPolicy":"[[privileged]]\nnode_selector = { p = \"\" }"}"#,
        "namespace default has restricted",
    ),
    (
        r#"identity.volume="hostPath",executors.podSecurity="baseline""#,
        "namespace gitea-actions has baseline (executors.podSecurity), so every job would end with config_error; set \
         executors.podSecurity=privileged, or identity.volume=csi",
    ),
    (
        r#"executors={"podSecurity":"privileged","privilegedPolicy":"[[privileged]]\nlabel = 'big'\nnode_selector = { p = \"\" }"},settings.EXTRA_LABELS="bigger=pod""#,
        "set settings.EXTRA_LABELS to big=pod",
    ),
    (
        r#"executors={"namespace":"default","serviceAccount":"gitea-dynamic-runner"}"#,
        "executors.serviceAccount: gitea-dynamic-runner is the controller's own",
    ),
    (
        r#"identity.controllerId="spiffe://example.org.test/x""#,
        "identity.controllerId: spiffe://example.org.test/x is not",
    ),
    (r#"identity.agentId="spiffe://other.test/x""#, "identity.agentId: spiffe://other.test/x is not inside"),
    (r#"nats.workerUser="ci-producer""#, "nats.workerUser: ci-producer is nats.producerUser as well"),
    (r#"nats.caConfigMap="""#, "nats.caConfigMap: the controller's image has no authorities"),
    (
        r#"nodeSelector={"pool":"ci"},executors={"template":{"spec":{"nodeSelector":{"pool":"ci"}}}}"#,
        "nodeSelector: it names the nodes of jobs only",
    ),
    (
        r#"nodeSelector={"p":""},executors={"podSecurity":"privileged","privilegedPolicy":"[[privileged]]\nnode_selector = { p = \"\" }"}"#,
        "nodeSelector: it names the nodes of jobs only",
    ),
    (r#"executors={"podSecurity":"privileged","privilegedPolicy":"privileged = []"}"#, "node_selector = "),
];

/// Values as JSON, each set over ones that are right, and what is in the rendering then, with single spaces.
pub(super) const RIGHT: [(&str, &str); 15] = [
    // NEW-70: of two labels of a selector the controller's node may have one.
    (
        r#"executors={"podSecurity":"privileged","privilegedPolicy":"[[privileged]]\nnode_selector = { \"example.org/p\" = \"\", pool = 'p' }\n"}"#,
        "requiredDuringSchedulingIgnoredDuringExecution: nodeSelectorTerms: - matchExpressions: - key: example.org/p \
         operator: NotIn values: - \"\" - matchExpressions: - key: pool operator: NotIn values: - p podAntiAffinity:",
    ),
    (
        r#"executors={"template":{"spec":{"nodeSelector":{"pool":"ci","kubernetes.io/os":"linux"}}}}"#,
        "nodeSelectorTerms: - matchExpressions: - key: pool operator: NotIn values: - ci podAntiAffinity:",
    ),
    (r#"executors={"template":{"spec":{"nodeSelector":{"kubernetes.io/os":"linux"}}}}"#, "affinity: podAntiAffinity:"),
    (
        r#"affinity={"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":7}]}}"#,
        "preferredDuringSchedulingIgnoredDuringExecution: - weight: 7 - podAffinityTerm:",
    ),
    (
        r#"executors={"podSecurity":"privileged","privilegedPolicy":"[[privileged]]\nlabel = 'big'\nnode_selector = { p = \"\" }"},settings.EXTRA_LABELS="other=pod, big = pod""#,
        "name: gitea-actions labels: pod-security.kubernetes.io/enforce: privileged",
    ),
    // Whose level nobody told the chart.
    (
        r#"executors={"createNamespace":false,"privilegedPolicy":"[[privileged]]\nnode_selector = { p = \"\" }"}"#,
        "privileged-policy.toml: |",
    ),
    (
        r#"createReleaseNamespace=true,executors={"namespace":"default","podSecurity":"privileged"}"#,
        "name: default labels: pod-security.kubernetes.io/enforce: privileged",
    ),
    (
        r#"nodeSelector={"pool":"ci"},executors={"template":{"spec":{"nodeSelector":{"pool":"ci","os":"x"}}}}"#,
        "operator: NotIn values: - x - matchExpressions: - key: pool",
    ),
    // NEW-78: whatever port Gitea and NATS have, the controller reaches it.
    (
        r#"gitea.url="https://git.example.org:3000/s,b/",nats.url="tls://a:4111,tls://b",networkPolicies.controllerPorts=[6443]"#,
        "- ports: - {protocol: TCP, port: 3000} - {protocol: TCP, port: 4111} - {protocol: TCP, port: 4222} - {protocol: \
         TCP, port: 6443}",
    ),
    (
        r#"createReleaseNamespace=true,identity.means="spire-server",identity.serverSocketGroup=7,executors={"namespace":"default","privilegedPolicy":"[[privileged]]\nnode_selector = { p = \"\" }"}"#,
        "name: default labels: pod-security.kubernetes.io/enforce: privileged",
    ),
    (r#"nats.caConfigMap="",caConfigMap="all""#, "configMap: {name: all}"),
    (r#"networkPolicies.controllerEgress=[{"ports":[{"port":5353}]}]"#, "- ports: - port: 5353"),
    (r#"gitea.url="http://127.0.0.1:3000/sub/""#, r#"value: "http://127.0.0.1:3000/sub/""#),
    (r#"gitea.endlessTaskTimeout="10m 30s""#, r#"value: "10m 30s""#),
    (r#"nats.url="tls://a, nats://[::1]:1/""#, r#"value: "tls://a, nats://[::1]:1/""#),
];
