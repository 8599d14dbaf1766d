fine:
  test.check_pillar:
    - present:
      - flag
      - web:port
    - string: word
    - listing: list
    - dictionary: web
missing:
  test.check_pillar:
    - present: nothing
wrong:
  test.check_pillar:
    - listing: word
empty:
  test.check_pillar: []
