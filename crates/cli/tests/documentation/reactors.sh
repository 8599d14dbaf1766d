# The rules are part of the environment's code.
mkdir -p "$GIT/infra/code.git/reactors"
cp reactors/web.yaml "$GIT/infra/code.git/reactors/"
printf 'applications:\n  shop:\n    components:\n      web: {nodes: [web-1.example.com]}\n' > "$GIT/infra/code.git/order.yaml"
git -C "$GIT/infra/code.git" add --all
git -C "$GIT/infra/code.git" commit --quiet --message 'rules'
bunraku environment deploy production --wait
until bunraku reactor show mend; do sleep 0.1; done
