many:
  test.succeed_with_changes:
    - names: [one, two]
watcher:
  test.nop:
    - watch:
      - test: two
