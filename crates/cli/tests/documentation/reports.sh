newest_report() { command bunraku report list --json | grep -o '"run": *"[^"]*"' | head -n 1 | grep -o '[0-9a-f-]\{36\}'; }
# Events to follow: the first node runs again and again.
run_again() { while command bunraku node run web-1.example.com --wait; do :; done; }
bunraku() {
    if [ "$1 $2" = 'report follow' ]; then run_again > /dev/null 2>&1 & fi
    command bunraku "$@"
}
