#!/usr/bin/env bash
# MODEL_PATH=checkpoint TOKENIZER_PATH=base model [SERVED_MODEL_NAME] [TP_SIZE=1] [HOST] [PORT=3000] [CONTEXT_LENGTH=32768] [API_KEY]
# [SGLANG_EXTRA_ARGS]: serves a checkpoint on this machine, with SWE-smith's name and variables. Two defaults differ: HOST is 127.0.0.1, and the key is
# random. The key is in the file server.token and never on a command line.
source "$(dirname "$(readlink -f "$0")")/as_before.sh"
no_words "$@"
stands_for "the rule rollout: a policy with weights: sft:<name> is served as long as it acts (docs/serving.md)"
[ -n "${MODEL_PATH:-}" ] || fail "MODEL_PATH is not set; expected the folder of the fine-tuned checkpoint"
[ -n "${TOKENIZER_PATH:-}" ] || fail "TOKENIZER_PATH is not set; expected the folder of the base model"
export API_KEY="${API_KEY:-}"
exec "$python" -m scripts.serve --checkpoint "$MODEL_PATH" --tokenizer "$TOKENIZER_PATH" \
  --served-model-name "${SERVED_MODEL_NAME:-qwen2.5-coder-7b-sft-local}" --tp "${TP_SIZE:-1}" \
  --port "${PORT:-3000}" --host "${HOST:-127.0.0.1}" --context-length "${CONTEXT_LENGTH:-32768}" \
  --api-key-env API_KEY --sglang-args="${SGLANG_EXTRA_ARGS:-}"
