changed: test.succeed_with_changes
same: test.nop
fires:
  test.nop:
    - watch:
      - test: changed
quiet:
  test.nop:
    - watch:
      - test: same
own changes:
  test.succeed_with_changes:
    - watch:
      - test: changed
