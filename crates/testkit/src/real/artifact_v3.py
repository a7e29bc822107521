# An artifact up and down by plain HTTP, as the upload and download actions of version 3 do it: one file in two chunks.
# Ends with an error if anything is not as it must be, also if a URL does not go by the address that the job was given.
import base64, hashlib, json, os, urllib.parse, urllib.request

runtime = os.environ["ACTIONS_RUNTIME_URL"]
artifacts = f"{runtime}_apis/pipelines/workflows/{os.environ['GITHUB_RUN_ID']}/artifacts?api-version=6.0-preview"


def call(method, url, body=None, **headers):
    got, given = urllib.parse.urlparse(url).netloc, urllib.parse.urlparse(runtime).netloc
    assert got == given, f"it would go to {got}, not by {given}"
    headers["Authorization"] = "Bearer " + os.environ["ACTIONS_RUNTIME_TOKEN"]
    headers.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def ask(method, url, **fields):
    return json.loads(call(method, url, json.dumps(fields).encode() if fields else None))


def item(url, path):
    return url + ("&" if "?" in url else "?") + urllib.parse.urlencode({"itemPath": path})


data = os.urandom(300_001)
upload = ask("POST", artifacts, Type="actions_storage", Name="parcel")["fileContainerResourceUrl"]
for start in range(0, len(data), 200_000):
    chunk = data[start : start + 200_000]
    call(
        "PUT",
        item(upload, "parcel/box/file"),
        chunk,
        **{
            "Content-Type": "application/octet-stream",
            "Content-Range": f"bytes {start}-{start + len(chunk) - 1}/{len(data)}",
            "x-tfs-filelength": str(len(data)),
            "x-actions-results-md5": base64.b64encode(hashlib.md5(chunk).digest()).decode(),
        },
    )
ask("PATCH", artifacts + "&artifactName=parcel", Size=len(data))
(found,) = ask("GET", artifacts)["value"]
(file,) = ask("GET", item(found["fileContainerResourceUrl"], found["name"]))["value"]
assert (found["name"], file["path"]) == ("parcel", "parcel/box/file"), (found, file)
assert call("GET", file["contentLocation"]) == data, "another artifact came back"
print("artifact v3 round trip of", len(data), "bytes")
