one:
  test.fail_without_changes:
    - check_cmd:
      - 'true'
