bad: test.fail_without_changes
good: test.nop
both:
  test.nop:
    - onfail:
      - test: bad
    - require:
      - test: good
neither:
  test.nop:
    - onfail:
      - test: good
    - require:
      - test: bad
