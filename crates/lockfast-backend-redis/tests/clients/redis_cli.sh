#!/bin/sh
# A lock as shell scripts take it with redis-cli, driven by lines on standard input.
# Usage: redis_cli.sh PORT; see kit/foreign.rs for the lines.
port=$1
name=
value=

cli() {
    redis-cli -p "$port" "$@"
}

# One try: SET NX PX, as everybody writes it.
try() {
    value="cli-$$-$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')"
    [ "$(cli SET "$name" "$value" NX PX "$1")" = OK ]
}

compare_and() {
    cli EVAL "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call($1) end return 0" \
        1 "$name" "$value" "$2"
}

echo "answer ready"
while read -r word first second third; do
    case $word in
    acquire)
        name=$first
        tries=$((third / 50))
        answer=taken
        while :; do
            if try "$second"; then
                answer=granted
                break
            fi
            [ "$tries" -gt 0 ] || break
            tries=$((tries - 1))
            sleep 0.05
        done
        echo "answer $answer"
        ;;
    extend)
        if [ "$(compare_and "'PEXPIRE', KEYS[1], ARGV[2]" "$first")" = 1 ]; then
            echo "answer extended"
        else
            echo "answer refused"
        fi
        ;;
    release)
        if [ "$(compare_and "'DEL', KEYS[1]" 0)" = 1 ]; then
            echo "answer released"
        else
            echo "answer refused"
        fi
        ;;
    esac
done
