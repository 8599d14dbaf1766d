bad: test.fail_without_changes
good: test.nop
blocked:
  test.nop:
    - require:
      - test: bad
on blocked:
  test.nop:
    - onfail:
      - test: blocked
on blocked and good:
  test.nop:
    - onfail:
      - test: blocked
      - test: good
all of both:
  test.nop:
    - onfail_all:
      - test: blocked
      - test: bad
