good: test.nop
bad: test.fail_without_changes
worse: test.fail_with_changes
not all:
  test.nop:
    - onfail_all:
      - test: good
      - test: bad
all:
  test.nop:
    - onfail_all:
      - test: bad
      - test: worse
