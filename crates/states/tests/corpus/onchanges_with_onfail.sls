changed: test.succeed_with_changes
good: test.nop
both:
  test.nop:
    - onchanges:
      - test: changed
    - onfail:
      - test: good
