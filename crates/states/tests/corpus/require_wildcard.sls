app-one: test.succeed_with_changes
app-two: test.fail_without_changes
other: test.nop
all:
  test.nop:
    - require:
      - test: app-*
