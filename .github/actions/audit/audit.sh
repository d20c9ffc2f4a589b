#!/usr/bin/env bash
# Audits the models at the commit $BASE (if there is one), then those here, into the folder kvviz-audit.
# The exit status is 1 if one of the limits $FAIL_ON is exceeded. $MODELS, $POLICIES: as the action's inputs.
set -euo pipefail

read -r -a policies <<<"${POLICIES:-ideal onnxruntime}"
options=(--policies "${policies[@]}")
if [[ -n "${BASE:-}" ]]; then
  base=$(mktemp -d)
  trap 'git worktree remove --force "$base"; rm -rf "$base"' EXIT
  git cat-file -e "$BASE" 2>/dev/null || git fetch --quiet --depth 1 origin "$BASE"
  git worktree add --quiet --detach "$base" "$BASE"
  # A base without models has nothing to compare with.
  if [[ -n $(find "$base/$MODELS" -name '*.onnx' -o -name '*.gguf' 2>/dev/null | head -n 1) ]]; then
    kvviz audit "$base/$MODELS" "${options[@]}" --save kvviz-audit/base >/dev/null
    options+=(--baseline kvviz-audit/base/audit.json)
  fi
fi
while IFS= read -r limit; do
  # Growth is measured where there is a baseline.
  if [[ -n "$limit" && ( "$limit" != *+* || " ${options[*]} " == *" --baseline "* ) ]]; then
    options+=(--fail-on "$limit")
  fi
done <<<"${FAIL_ON:-}"

status=0
kvviz audit "$MODELS" "${options[@]}" --save kvviz-audit || status=$?
if [[ -n "${GITHUB_STEP_SUMMARY:-}" && -f kvviz-audit/audit.md ]]; then
  cat kvviz-audit/audit.md >>"$GITHUB_STEP_SUMMARY"
fi
exit "$status"
