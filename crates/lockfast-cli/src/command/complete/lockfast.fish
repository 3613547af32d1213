# The names of locks and stores, which only lockfast itself knows. Where it knows some, no files are offered.
function __lockfast_ask
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -e typed[1]
    set -g __lockfast_found (lockfast __complete $typed "$current" 2>/dev/null)
    test (count $__lockfast_found) -gt 0
end
complete -c lockfast -n __lockfast_ask -f -a '$__lockfast_found'
complete -c lockfast -l on -x -a '(__lockfast_ask; string replace -- --on= "" $__lockfast_found)'
