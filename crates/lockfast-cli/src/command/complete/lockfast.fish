# The names of locks and stores, which only lockfast itself knows.
function __lockfast_ask
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -e typed[1]
    lockfast __complete $typed "$current" 2>/dev/null
end
complete -c lockfast -a "(__lockfast_ask)"
