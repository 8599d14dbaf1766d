# The facts of a node change.
echo 'rack: 7' > "$FACTS/web-1.example.com/rack.yaml"
bunraku facts refresh web-1.example.com
