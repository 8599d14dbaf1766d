yes:
  test.succeed_with_changes:
    - unless: 'false'
no:
  test.succeed_with_changes:
    - unless: 'true'
list:
  test.succeed_with_changes:
    - unless:
      - 'true'
      - 'false'
