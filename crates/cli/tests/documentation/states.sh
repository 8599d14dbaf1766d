mkdir srv
cp -r examples/states/salt examples/states/pillar srv/
trap 'rm -f /tmp/hello' EXIT
# The reader's own source of secrets.
vault() { echo '{"workers": 8}'; }
