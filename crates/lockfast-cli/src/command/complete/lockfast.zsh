# The names of locks and stores, which only lockfast itself knows.
_lockfast_ask() {
    local -a found
    found=("${(@f)$(lockfast __complete "${(@)lockfast_typed}" 2>/dev/null)}")
    # zsh keeps the --on= of --on=VALUE by itself.
    found=(${${found:#}#--on=})
    if (( ${#found} )); then
        compadd -a found
    else
        _default
    fi
}
