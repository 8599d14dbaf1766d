one:
  test.fail_without_changes:
    - retry:
        attempts: 2
        interval: 0
