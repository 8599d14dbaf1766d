changed: test.succeed_with_changes
same: test.nop
both:
  test.nop:
    - onchanges:
      - test: same
    - watch:
      - test: changed
