one:
  test.succeed_with_changes:
    - onlyif:
      - fun: file.file_exists
        path: /etc/passwd
two:
  test.succeed_with_changes:
    - unless:
      - fun: file.file_exists
        path: /etc/passwd
