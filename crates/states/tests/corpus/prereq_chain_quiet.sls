a:
  test.nop:
    - prereq:
      - test: b
b:
  test.succeed_with_changes:
    - prereq:
      - test: c
c: test.nop
