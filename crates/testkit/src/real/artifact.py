# An artifact up and down by plain HTTP, as the upload and download actions do it (artifact protocol v4). Ends with an
# error if anything is not as it must be, also if the bodies would not go by the address that the job was given.
import base64, hashlib, json, os, urllib.parse, urllib.request

results = os.environ["ACTIONS_RESULTS_URL"].rstrip("/")
token = os.environ["ACTIONS_RUNTIME_TOKEN"]
middle = token.split(".")[1]
scopes = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["scp"].split()
run, job = next(s for s in scopes if s.startswith("Actions.Results:")).split(":")[1:3]
ids = {"workflow_run_backend_id": run, "workflow_job_run_backend_id": job}


def call(method, **fields):
    url = f"{results}/twirp/github.actions.results.api.v1.ArtifactService/{method}"
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + token}
    request = urllib.request.Request(url, json.dumps({**ids, **fields}).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def put(url, body):
    headers = {"Content-Type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"), timeout=30) as answer:
        assert answer.status == 201, answer.status


def by_the_proxy(url):
    got, given = urllib.parse.urlparse(url).netloc, urllib.parse.urlparse(results).netloc
    assert got == given, f"bodies would go to {got}, not by {given}"
    return url


data = os.urandom(300_000)
block = base64.b64encode(b"block-0001").decode()
upload = by_the_proxy(call("CreateArtifact", name="parcel", version=4)["signedUploadUrl"])
put(f"{upload}&comp=block&blockid={urllib.parse.quote(block)}", data)
blocks = f'<?xml version="1.0" encoding="utf-8"?><BlockList><Latest>{block}</Latest></BlockList>'
put(f"{upload}&comp=blocklist", blocks.encode())
digest = "sha256:" + hashlib.sha256(data).hexdigest()
call("FinalizeArtifact", name="parcel", size=str(len(data)), hash=digest)
assert [a["name"] for a in call("ListArtifacts")["artifacts"]] == ["parcel"]
download = by_the_proxy(call("GetSignedArtifactURL", name="parcel")["signedUrl"])
with urllib.request.urlopen(download, timeout=30) as answer:
    assert answer.read() == data, "another artifact came back"
print("artifact round trip of", len(data), "bytes")
