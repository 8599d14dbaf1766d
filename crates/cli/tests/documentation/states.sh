mkdir srv
cp -r examples/states/salt examples/states/pillar srv/
at_exit 'rm -f /tmp/hello'
# The reader's own source of secrets.
vault() { echo '{"workers": 8}'; }
