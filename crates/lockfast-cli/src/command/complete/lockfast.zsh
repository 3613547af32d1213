# The names of locks and stores, which only lockfast itself knows.
_lockfast_ask() {
    local -a found
    found=("${(@f)$(lockfast __complete "${(@)lockfast_typed}" 2>/dev/null)}")
    found=(${found:#})
    if (( ${#found} )); then
        compadd -a found
    else
        _default
    fi
}
