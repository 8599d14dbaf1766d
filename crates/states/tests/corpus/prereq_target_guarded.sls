before:
  test.nop:
    - prereq:
      - test: target
target:
  test.succeed_with_changes:
    - onlyif: 'false'
