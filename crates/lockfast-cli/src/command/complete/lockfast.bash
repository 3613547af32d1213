# The names of locks and stores, which only lockfast itself knows. bash breaks words at : and =, so the
# words are put together again as they were typed.
_lockfast_ask() {
    _lockfast "$@"
    local rest="${COMP_LINE:0:COMP_POINT}" word name
    local -a typed=() found=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD}" ""; do
        if [[ ${#typed[@]} -eq 0 || $rest == [[:space:]]* ]]; then
            rest="${rest#"${rest%%[![:space:]]*}"}"
            typed+=("")
        fi
        typed[${#typed[@]}-1]+="$word"
        rest="${rest#"$word"}"
    done
    typed[${#typed[@]}-1]+="$rest"
    word="${typed[${#typed[@]}-1]}"
    word="${word%"$2"}"
    while IFS= read -r name; do
        printf -v name '%q' "${name#"$word"}"
        found+=("$name")
    done < <("$1" __complete "${typed[@]:1}" 2>/dev/null)
    if [[ ${#found[@]} -gt 0 ]]; then
        COMPREPLY=("${found[@]}")
    fi
}
