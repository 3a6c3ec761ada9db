#!/usr/bin/env bash
# What the action does: a `ttrace diff` by its inputs (TTRACE_*), the report for the job's summary, and
# the exit code of the comparison: 0 the same computation, 1 not, 2 undecided.
set -uo pipefail

report=$PWD/$TTRACE_OUTPUT
[[ $TTRACE_OUTPUT == /* ]] && report=$TTRACE_OUTPUT

if ! command -v ttrace > /dev/null; then
  echo "::error title=TTrace::ttrace is not installed: name a wheel in the input 'package', or install it in a step before"
  exit 2
fi
arguments=(-o "$report" --force --keep report --candidate "$TTRACE_CANDIDATE"
  --junit "$report/junit.xml" --sarif "$report/ttrace.sarif")
if [[ -n $TTRACE_GOLDEN && -n $TTRACE_REFERENCE ]] || [[ -z $TTRACE_GOLDEN$TTRACE_REFERENCE ]]; then
  echo "::error title=TTrace::give one of the inputs 'golden' and 'reference'"
  exit 2
elif [[ -n $TTRACE_GOLDEN ]]; then
  if [[ ! -d $TTRACE_GOLDEN ]]; then
    echo "::error title=TTrace::no golden reference in '$TTRACE_GOLDEN': make one by" \
      "ttrace baseline -o '$TTRACE_GOLDEN' -- COMMAND, and commit it"
    exit 2
  fi
  arguments+=(--reference-trace "$TTRACE_GOLDEN")
else
  arguments+=(--reference "$TTRACE_REFERENCE")
fi
# Options are words, as in a shell, without its other powers.
mapfile -t options < <(xargs -n 1 printf '%s\n' <<< "$TTRACE_OPTIONS")
[[ -z ${options[*]-} ]] || arguments+=("${options[@]}")

log=$(mktemp)
trap 'rm -f "$log"' EXIT
ttrace diff "${arguments[@]}" 2>&1 | tee "$log"
code=${PIPESTATUS[0]}

summary=${GITHUB_STEP_SUMMARY:-/dev/null}
outputs=${GITHUB_OUTPUT:-/dev/null}
if [[ -f $report/result.json ]]; then
  ttrace report "$report" --markdown - >> "$summary"
  verdict=$(sed -n 's/^  "verdict": "\([a-z_]*\)",$/\1/p;/^  "verdict"/q' "$report/result.json")
  printf 'verdict=%s\nreport=%s\n' "$verdict" "$report" >> "$outputs"
else
  # Nothing was compared. Lines of the log may hold anything: four spaces make code of them.
  {
    printf '### TTrace: nothing was compared\n\n'
    tail -n 20 "$log" | sed 's/^/    /'
  } >> "$summary"
  [[ ! -d $report ]] || printf 'report=%s\n' "$report" >> "$outputs"
fi
case $code in
  0) ;;
  1) echo "::error title=TTrace::the candidate is not the same computation; see the job's summary" ;;
  *) echo "::error title=TTrace::it could not be decided whether the runs agree; see the job's summary" ;;
esac
exit "$code"
