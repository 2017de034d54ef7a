#!/usr/bin/env bash
# [--sglang-url URL]: makes an environment for mini-swe-agent on this node, and checks Docker and the server.
source "$(dirname "$(readlink -f "$0")")/../before.sh"
read_settings
url="${SGLANG_URL:-}"
while [ $# -gt 0 ]; do
  case "$1" in
    --sglang-url) url="${2:-}"; shift 2 || fail "--sglang-url: an address is missing" ;;
    *) fail "$1: expected --sglang-url URL" ;;
  esac
done
[[ -z $url || $url =~ ^https?://[^/] ]] || fail "--sglang-url $url; expected an address such as http://host:30000"
echo "$(basename "$0") stands for \`python envs/install.py .venv-mini-swe-agent envs/mini-swe-agent.txt\`" >&2
system="${PYTHON:-$(command -v python3.11 || command -v python3 || true)}"
command -v "$system" >/dev/null || fail "no such program: ${system:-python3}; expected PYTHON=<a Python 3.11>"
cd "$root"
"$system" envs/install.py .venv-mini-swe-agent --no-compile --imports minisweagent,datasets envs/mini-swe-agent.txt
echo "mini-swe-agent: $root/.venv-mini-swe-agent"
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  echo "docker: it answers"
else
  echo "docker: it does not answer; start it, or run with --environment sandbox (bubblewrap)" >&2
fi
[ -z "$url" ] || "$system" - "$url" <<'LOOK'
import json, os, sys, urllib.error, urllib.request

base = sys.argv[1].rstrip("/")
base = base if base.endswith("/v1") else f"{base}/v1"
request = urllib.request.Request(f"{base}/models", headers={"Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "none")})
try:
    with urllib.request.urlopen(request, timeout=10) as answer:
        names = [row["id"] for row in json.load(answer)["data"]]
except urllib.error.HTTPError as error:
    print(f"error: {base} answers {error.code}; expected its token in OPENAI_API_KEY", file=sys.stderr)
    sys.exit(2)
except (OSError, ValueError, KeyError, TypeError) as error:
    print(f"error: {base} does not answer as a model server ({error})", file=sys.stderr)
    sys.exit(2)
print(f"server: {base} serves {', '.join(names)}")
LOOK
