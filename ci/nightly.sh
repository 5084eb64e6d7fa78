#!/usr/bin/env bash
# One nightly run of trncheck: judge, compare with the last good run, draw the trend, write a summary.

set -euo pipefail

usage() {
    cat <<'TEXT'
usage: ci/nightly.sh [OPTION VALUE]...

  --target cpu|trn2               where to judge                                  NIGHTLY_TARGET   trn2
  --level smoke|standard|full     how much to check                               NIGHTLY_LEVEL    standard
  --release VERSION|FILE          Neuron release                                  NIGHTLY_RELEASE  the newest known whole
  --results FOLDER                where runs are kept                             NIGHTLY_RESULTS  results
  --summary FILE                  the summary, Markdown    NIGHTLY_SUMMARY  RESULTS/summary-TARGET-LEVEL.md
  --lock FILE                     the lease of this host    NIGHTLY_LOCK  /tmp/trncheck-nightly.lock
  --wait SECONDS                  how long to wait for the lease                  NIGHTLY_WAIT     600
  --link URL                      where the CI shows this run, for the summary    NIGHTLY_LINK
  --accept                        a run without failures becomes the last good one
                                  though the diff says worse                      NIGHTLY_ACCEPT=1

An option beats its environment variable, which beats the default. trncheck, python3 and flock must be on PATH.

RESULTS/last-good-TARGET-LEVEL names the last good run. It moves to a complete run without failures that the diff does
not call worse, and to nothing else: what is no longer covered stays red until it is covered again or accepted.
diff.txt, diff.md and nightly.log go into the folder of the run, trend.html into RESULTS. A trend or a page that cannot
be made is named in the summary and changes no status. Signals INT and TERM stop the run and keep what it has found.

exit status:
  0    nothing failed, and nothing got worse (or --accept)
  1    a check failed, or the diff with the last good run says worse
  2    bad input: this script's, trncheck run's, or a last good run that trncheck diff cannot read
  3    the night itself failed: no complete report, or a file that cannot be written
  75   the lease is busy: nothing was run
  128+N  stopped by signal N; any other status is trncheck run's own, which wins over the diff's
TEXT
}

say() { printf 'nightly: %s\n' "$*" >&2; }
refuse() {
    say "$*"
    exit 2
}

one_of() { # OPTION VALUE ALLOWED...
    local option=$1 value=$2 allowed
    shift 2
    for allowed; do
        [ "$value" != "$allowed" ] || return 0
    done
    refuse "$option $value: choose one of: $*"
}

read_options() {
    target=${NIGHTLY_TARGET:-trn2} level=${NIGHTLY_LEVEL:-standard} release=${NIGHTLY_RELEASE:-}
    results=${NIGHTLY_RESULTS:-results} summary=${NIGHTLY_SUMMARY:-} link=${NIGHTLY_LINK:-}
    lock=${NIGHTLY_LOCK:-/tmp/trncheck-nightly.lock} patience=${NIGHTLY_WAIT:-600} accept=${NIGHTLY_ACCEPT:-}
    local option
    while [ $# -gt 0 ]; do
        option=$1
        shift
        case $option in
            -h | --help) usage && exit 0 ;;
            --accept) accept=1 && continue ;;
            --*=*) set -- "${option#*=}" "$@" && option=${option%%=*} ;;
        esac
        case $option in
            --target | --level | --release | --results | --summary | --lock | --wait | --link) ;;
            *) refuse "unknown option $option: see ci/nightly.sh --help" ;;
        esac
        [ $# -gt 0 ] && [ -n "$1" ] || refuse "$option needs a value: see ci/nightly.sh --help"
        case $option in
            --target) target=$1 ;;
            --level) level=$1 ;;
            --release) release=$1 ;;
            --results) results=$1 ;;
            --summary) summary=$1 ;;
            --lock) lock=$1 ;;
            --wait) patience=$1 ;;
            --link) link=$1 ;;
        esac
        shift
    done
    one_of --target "$target" cpu trn2
    one_of --level "$level" smoke standard full
    case $accept in 0 | false) accept='' ;; esac
    case $patience in *[!0-9]*) refuse "--wait $patience: give whole seconds" ;; esac
    local command
    for command in trncheck python3 flock; do
        command -v "$command" >/dev/null || refuse "$command is not on PATH: activate its environment or install it"
    done
}

take_lease() {
    [ ! -L "$lock" ] || refuse "--lock $lock: is a symbolic link, choose another file"
    # Opened for reading only: Linux refuses to create over a file of another user in a sticky folder such as /tmp.
    [ -e "$lock" ] || (umask 0 && : >>"$lock") 2>/dev/null || refuse "--lock $lock: cannot be made, choose another file"
    { exec 9<"$lock"; } 2>/dev/null || refuse "--lock $lock: cannot be read, choose another file"
    if ! flock -w "$patience" 9; then
        local holder
        holder=$(head -n 1 "$lock" | tr -cd '[:print:]')
        say "busy: $lock is held by ${holder:-an unknown process} (waited $patience s); try later or raise --wait"
        exit 75
    fi
    # Stays behind, and is read only while somebody holds the lease.
    { printf 'pid %s of %s since %s (%s, %s)\n' "$$" "$(id -un)" "$(date -u +%FT%TZ)" "$target" "$level" >"$lock"; } \
        2>/dev/null || say "warning: $lock cannot be written, so it does not say who holds it"
}

list_runs() { # folders of this target, relative to $results
    (cd "$results" && find . -mindepth 4 -maxdepth 4 -path "./*/$target/*/report.json") |
        sed 's|^\./||; s|/report\.json$||' | LC_ALL=C sort
}

find_new_run() {
    # Of several, as on a store that hosts share, the newest: run ids sort by time.
    new=$(LC_ALL=C comm -13 "$work/before" <(list_runs) | awk -F/ '{ print $3 "\t" $0 }' | LC_ALL=C sort | tail -n 1)
    new=${new#*$'\t'}
}

# shellcheck disable=SC2329 # called by a trap
stop() { # SIGNAL-NUMBER
    local again=$stopped
    stopped=$1
    [ -n "$child" ] || return 0
    if [ "$again" -eq 0 ]; then
        say "stopping the run, which keeps what it has found"
        kill -INT "$child" 2>/dev/null || true
        # Neither a hung device nor a hung rank may hold the lease for ever.
        (exec 9>&- >/dev/null 2>&1 && sleep 30 && kill -TERM -- "-$child" && sleep 10 && kill -KILL -- "-$child") &
        killer=$!
    else
        kill -TERM -- "-$child" 2>/dev/null || true
    fi
}

run() {
    local arguments=(run --target "$target" --level "$level" "--results=$results")
    [ -z "$release" ] || arguments+=("--release=$release")
    mkfifo "$work/output"
    tee -p "$log" <"$work/output" 9>&- &
    copier=$!
    # Job control gives the run a process group of its own and lets it see SIGINT, on which pytest ends in good order.
    # It inherits the lease: ranks that outlive this script still own the cores.
    set -m
    trncheck "${arguments[@]}" >"$work/output" 2>&1 </dev/null &
    child=$!
    set +m
    [ "$stopped" -eq 0 ] || kill -INT "$child" # the signal came before there was a run
    while :; do
        run_status=0
        wait "$child" || run_status=$?
        kill -0 "$child" 2>/dev/null || break
    done
    child=
    [ -z "$killer" ] || kill "$killer" 2>/dev/null || true
    # What a stray rank holds open may never end, so not for ever.
    local tenths=50
    while [ "$tenths" -gt 0 ] && kill -0 "$copier" 2>/dev/null; do
        sleep 0.1
        tenths=$((tenths - 1))
    done
}

read_report() { # sets complete and verdict
    local fields=()
    mapfile -t fields < <(
        python3 - "$results/$new/report.json" <<'PYTHON'
import html, json, re, sys

sys.stdout.reconfigure(encoding="utf-8")
report = json.load(open(sys.argv[1], encoding="utf-8"))
verdict = report["verdict"]
line = " ".join(f"{verdict['status']}: {verdict['headline']}".split())
print("yes" if report["complete"] is True else "no")
print(html.escape(re.sub(r"([\\`*_\[\]~#$|])", r"\\\1", line), quote=False).replace("@", "@\u2060"))
PYTHON
    )
    complete=${fields[0]:-no} verdict=${fields[1]:-the report cannot be read}
}

note() {
    say "warning: $*"
    notes+=("$*")
}

compare() {
    local folder=$results/$new
    local diff=(trncheck diff "$results/$last_good" "$folder" --results "$results")
    diff_status=0
    "${diff[@]}" --format text --out "$folder/diff.txt" 2>"$work/diff.err" || diff_status=$?
    cat "$work/diff.err" >&2
    [ ! -f "$folder/diff.txt" ] || cat "$folder/diff.txt"
    local status=0
    "${diff[@]}" --format markdown --out "$folder/diff.md" >/dev/null 2>&1 || status=$?
    [ "$status" -eq "$diff_status" ] || note "trncheck diff gave status $diff_status as text, $status as Markdown."
    if [ "$diff_status" -gt 1 ]; then
        note "No diff with \`$last_good\` (status $diff_status); give --accept once, or remove $pointer."
    fi
}

draw_trend() {
    local status=0
    trncheck trend "$results" --format html --out "$work/trend.html" >"$work/trend.txt" || status=$?
    grep -vxF "$work/trend.html" "$work/trend.txt" || true
    if [ "$status" -eq 0 ] && [ -f "$work/trend.html" ]; then
        replace "$results/trend.html" <"$work/trend.html" || note "$results/trend.html cannot be written."
    else
        note "No new trend page: trncheck trend ended with status $status."
    fi
}

replace() { # FILE, from standard input, whole or not at all
    cat >"$1.part" && mv -f -- "$1.part" "$1"
}

move_last_good() {
    if [ "$run_status" -ne 0 ] || [ "$complete" != yes ]; then
        return 0
    fi
    [ "$diff_status" = none ] || [ "$diff_status" -eq 0 ] || [ -n "$accept" ] || return 0
    if printf '%s\n' "$new" | replace "$pointer"; then
        moved=yes
    else
        note "$pointer cannot be written, so the next night compares with an older run."
        own_status=3
    fi
}

settle_status() {
    if [ "$stopped" -ne 0 ]; then
        status=$((128 + stopped)) why="stopped"
    elif [ "$run_status" -ne 0 ]; then
        status=$run_status why="trncheck run"
    elif [ -z "$new" ] || [ "$complete" != yes ]; then
        status=3 why="trncheck run ended well but left no complete report"
    elif [ "$diff_status" != none ] && [ "$diff_status" -ne 0 ] && [ -z "$accept" ]; then
        status=$diff_status why="trncheck diff"
    else
        status=$own_status why=""
    fi
}

summarize() {
    local color=RED
    [ "$status" -ne 0 ] || color=GREEN
    printf '## Nightly %s, %s: %s\n\n%s\n\n| | |\n| --- | --- |\n' "$target" "$level" "$color" "$verdict"
    printf '| exit status | %s%s |\n' "$status" "${why:+ ($why)}"
    [ -z "$new" ] || printf '| run | %s |\n' "\`$new\`"
    [ -z "$last_good" ] || printf '| last good run until now | %s |\n' "\`$last_good\`"
    [ -z "$moved" ] || printf '| last good run from now on | this one |\n'
    [ -z "$new" ] || printf '| in its folder | report.html, report.json, junit.xml, diff.txt, nightly.log |\n'
    [ -z "$link" ] || printf '| CI | <%s> |\n' "$link"
    [ ${#notes[@]} -eq 0 ] || printf '\n'
    local line
    for line in ${notes[@]+"${notes[@]}"}; do
        printf -- '- %s\n' "$line"
    done
    printf '\n'
    if [ -z "$new" ]; then
        printf 'The log ends with:\n\n'
        # As code, so that nothing in it is Markdown.
        tail -n 30 "$log" | tr -d '\000-\010\013-\037' | sed 's/^/    /'
    elif [ -f "$results/$new/diff.md" ]; then
        cat "$results/$new/diff.md"
    elif [ "$diff_status" = none ] && [ -z "$last_good" ]; then
        printf 'There is no last good run to compare with.\n\n'
        [ ! -f "$results/$new/report.md" ] || cat "$results/$new/report.md"
    elif [ -f "$results/$new/report.md" ]; then
        cat "$results/$new/report.md"
    fi
}

# shellcheck disable=SC2329 # called by a trap
clean_up() {
    [ -z "$copier" ] || kill "$copier" 2>/dev/null || true
    [ -z "$work" ] || rm -rf "$work"
    [ -n "$finished" ] && return 0
    say "broke off; what the run has written is in $results"
    exit 3
}

main() {
    local target level release summary link lock patience accept
    read_options "$@"
    mkdir -p -- "$results" 2>/dev/null || refuse "--results $results: cannot be made, choose another folder"
    results=$(cd -- "$results" && pwd -P)
    [ -w "$results" ] || refuse "--results $results: cannot be written, choose another folder"
    summary=${summary:-$results/summary-$target-$level.md}
    take_lease

    # Not local: the traps use them.
    work='' child='' killer='' copier='' stopped=0 finished=''
    trap clean_up EXIT
    work=$(mktemp -d)
    trap 'stop 2' INT
    trap 'stop 15' TERM
    local pointer=$results/last-good-$target-$level log=$results/nightly-$target-$level.log
    local run_status=0 diff_status=none own_status=0 status=0 why='' notes=() moved=''
    local new='' last_good='' complete=no verdict='no report'

    list_runs >"$work/before"
    run
    # From here on no failing step may keep the others from being taken: behind || the shell goes on within a function.
    find_new_run || note "$results cannot be searched."
    if [ -n "$new" ]; then
        read_report
        mv -f -- "$log" "$results/$new/nightly.log" || note "$log stays where it is."
        if [ ! -f "$results/$new/report.html" ]; then
            trncheck report "$results/$new" >/dev/null || note "The pages of the run could not be written."
        fi
        [ ! -f "$pointer" ] || last_good=$(head -n 1 "$pointer") || last_good='?'
        if [ -n "$last_good" ] && [ "$complete" = yes ]; then
            compare || true
        elif [ "$complete" != yes ]; then
            note "The run did not come to its end, so it is not compared."
        fi
        move_last_good || true
    fi
    draw_trend || true
    settle_status
    if ! summarize | replace "$summary"; then
        say "warning: $summary cannot be written"
        [ "$status" -ne 0 ] || status=3
    fi
    say "status $status${why:+ ($why)}: ${new:+$results/$new, }summary in $summary"
    finished=yes
    exit "$status"
}

main "$@"
