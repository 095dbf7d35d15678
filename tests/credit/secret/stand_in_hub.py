"""A Hub on this machine: what ``huggingface_hub`` asks of the real one to make, fill and read a repository."""

import base64
import json
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml


class StandInHub(ThreadingHTTPServer):
    """Files of each repository, the uploads by content, and every request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.files, self.blobs, self.asked, self.private = {}, {}, [], {}

    def commit(self, repo):
        """The name of what a repository holds now."""
        return sha256(repr(sorted(self.files[repo].items())).encode()).hexdigest()[:40]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        path, body = self._request()
        if path == "/api/validate-yaml":
            _, front, _ = json.loads(body)["content"].split("---\n", 2)
            return self._answer({"errors": [], "warnings": []} if isinstance(yaml.safe_load(front), dict) else {})
        if path == "/api/repos/create":
            about = json.loads(body)
            repo = f"{about['organization']}/{about['name']}"
            self.server.private[repo] = about.get("visibility") == "private"
            known = repo in self.server.files
            self.server.files.setdefault(repo, {})
            return self._answer({"url": f"{self.server.url}/{repo}"}, status=409 if known else 200)
        if path.endswith("/objects/batch"):  # where to put large files
            given = json.loads(body)["objects"]
            put = [{**one, "actions": {"upload": {"href": f"{self.server.url}/put/{one['oid']}"}}} for one in given]
            return self._answer({"transfer": "basic", "objects": put})
        repo, _, kind = path.removeprefix("/api/models/").removesuffix("/main").rpartition("/")
        if kind == "preupload":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "regular" if name.endswith(".md") else "lfs" for name in names}
            files = [{"path": name, "shouldIgnore": False, "uploadMode": mode} for name, mode in modes.items()]
            return self._answer({"files": files})
        assert kind == "commit", path
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                self.server.files[repo][value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.server.files[repo][value["path"]] = self.server.blobs[value["oid"]]
        commit = self.server.commit(repo)
        return self._answer({"commitUrl": f"{self.server.url}/{repo}/commit/{commit}", "commitOid": commit})

    def do_PUT(self):
        path, body = self._request()
        oid = path.removeprefix("/put/")
        assert sha256(body).hexdigest() == oid
        self.server.blobs[oid] = body
        return self._answer({})

    def do_GET(self):
        path, _ = self._request()
        repo, _, name = unquote(path)[1:].partition("/resolve/main/")
        found = self.server.files.get(repo)
        if found is None or name not in found:
            missing = "RepoNotFound" if found is None else "EntryNotFound"
            return self._answer({"error": missing}, 404, {"X-Error-Code": missing})
        content = found[name]
        return self._answer(
            content, 200, {"ETag": sha256(content).hexdigest(), "X-Repo-Commit": self.server.commit(repo)}
        )

    do_HEAD = do_GET

    def log_message(self, *_):
        """Nothing is printed."""

    def _request(self):
        length = int(self.headers.get("Content-Length") or 0)
        path = urlsplit(self.path).path
        self.server.asked.append((self.command, path, self.headers.get("Authorization")))
        return path, self.rfile.read(length)

    def _answer(self, content, status=200, headers=None):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
