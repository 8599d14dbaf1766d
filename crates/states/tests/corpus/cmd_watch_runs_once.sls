changed: test.succeed_with_changes
echo watched:
  cmd.run:
    - watch:
      - test: changed
