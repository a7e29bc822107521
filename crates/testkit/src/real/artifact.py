# An artifact up and down by plain HTTP, as the upload and download actions do it (artifact protocol v4). Ends with an
# error if anything is not as it must be, also if the bodies would not go by the address that the job was given.
# ARTIFACT_NAME and ARTIFACT_BYTES choose another name and size.
import base64, hashlib, json, os, urllib.parse, urllib.request

results = os.environ["ACTIONS_RESULTS_URL"].rstrip("/")
token = os.environ["ACTIONS_RUNTIME_TOKEN"]
middle = token.split(".")[1]
scopes = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["scp"].split()
run, job = next(s for s in scopes if s.startswith("Actions.Results:")).split(":")[1:3]
name = os.environ.get("ARTIFACT_NAME", "parcel")
ids = {"workflow_run_backend_id": run, "workflow_job_run_backend_id": job}


def call(method, **fields):
    url = f"{results}/twirp/github.actions.results.api.v1.ArtifactService/{method}"
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + token}
    request = urllib.request.Request(url, json.dumps({**ids, **fields}).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def put(url, body):
    headers = {"Content-Type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"), timeout=120) as answer:
        assert answer.status == 201, answer.status


def by_the_proxy(url):
    got, given = urllib.parse.urlparse(url).netloc, urllib.parse.urlparse(results).netloc
    assert got == given, f"bodies would go to {got}, not by {given}"
    return url


data = os.urandom(int(os.environ.get("ARTIFACT_BYTES", 300_000)))
block = base64.b64encode(b"block-0001").decode()
upload = by_the_proxy(call("CreateArtifact", name=name, version=4)["signedUploadUrl"])
put(f"{upload}&comp=block&blockid={urllib.parse.quote(block)}", data)
blocks = f'<?xml version="1.0" encoding="utf-8"?><BlockList><Latest>{block}</Latest></BlockList>'
put(f"{upload}&comp=blocklist", blocks.encode())
digest = "sha256:" + hashlib.sha256(data).hexdigest()
call("FinalizeArtifact", name=name, size=str(len(data)), hash=digest)
assert name in [a["name"] for a in call("ListArtifacts")["artifacts"]]
download = by_the_proxy(call("GetSignedArtifactURL", name=name)["signedUrl"])
with urllib.request.urlopen(download, timeout=120) as answer:
    back = "sha256:" + hashlib.sha256(answer.read()).hexdigest()
assert back == digest, "another artifact came back"
print("artifact round trip of", len(data), "bytes")
